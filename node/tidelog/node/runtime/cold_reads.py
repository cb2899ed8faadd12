"""Whether a range of a file is in the page cache, and bringing it there off the event loop.

`sendfile` on a cold range would stop every client of the broker until the disk answered. And what
comes from a disk may have rotted on it: what is read is checked, so that no client gets it then.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import Final

from tidelog.node.ipc.fault_layout import Operation
from tidelog.node.log.cache_rules import KERNEL, RANDOM, SEQUENTIAL, CacheRules
from tidelog.node.log.scan import Course, first_bad
from tidelog.node.runtime.disk import read_into
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.page_cache import all_cached

_PROBE: Final = bytearray(1)
_ADVICE: Final = {SEQUENTIAL: os.POSIX_FADV_SEQUENTIAL, RANDOM: os.POSIX_FADV_RANDOM}


class ColdReads:
    """Probes ranges, and reads cold ones in the loop's threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, faults: Healthy | None = None) -> None:
        self._loop = loop
        self._faults = faults or Healthy()
        self.warmed = 0
        """Ranges that had to be read first."""
        self.dropped = 0
        """Bytes behind consumers."""

    def is_cached(self, fd: int, position: int, size: int, *, between: bool) -> bool:
        """Whether both ends are in memory; with `between` what lies there too, for headers may have
        been read at both ends and nothing else. That is counted page by page: once for each answer
        is enough."""
        known = _ends_cached(fd, position, size) if not between else all_cached(fd, position, size)
        if known is False:
            return False
        try:
            # It may be on its way there. To begin with this would be wrong: it brings in what it
            # does not find, and finds that where the disk is quicker than the processor.
            os.preadv(fd, [_PROBE], position, os.RWF_NOWAIT)
            if size > 1:
                os.preadv(fd, [_PROBE], position + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            # This file system cannot tell; sendfile will, or the read fails for its own reason.
            pass
        return True

    def is_sick(self, fd: int) -> bool:
        """Whether reading the file is to fail or to take long: then that must be tried, though all
        of it is in memory."""
        return bool(self._faults.on[0]) and self._faults.hits_open(Operation.READ, fd)

    def check(
        self,
        fd: int,
        position: int,
        size: int,
        done: Callable[[int | None], None],
        rules: CacheRules = KERNEL,
        course: Course | None = None,
    ) -> None:
        """Read whole batches into the cache, then call `done` on the loop: where the first bad one
        begins, or None. The rules say what the kernel is told of it, the course what must be so."""
        self.warmed += 1
        # The file may be closed while the thread reads (the number of open files is bounded).
        own = os.dup(fd)
        file = _OpenFile(own, self._faults)
        future = self._loop.run_in_executor(
            None, _read_through, file, position, size, rules, course
        )
        future.add_done_callback(lambda bad: done(bad.result()))

    def drop(self, fd: int, position: int, size: int) -> None:
        """These pages were read for one consumer, who has them: they need not stay."""
        self.dropped += size
        self._loop.run_in_executor(None, _drop, os.dup(fd), position, size)


def _ends_cached(fd: int, position: int, size: int) -> bool | None:
    return all_cached(fd, position, 1) and all_cached(fd, position + size - 1, 1)


class _OpenFile:
    """As much of a file as a check needs, by a descriptor; in any thread."""

    def __init__(self, fd: int, faults: Healthy) -> None:
        self._fd = fd
        self._faults = faults

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_into(self, position: int, buffer: memoryview) -> int:
        if self._faults.on[0]:
            self._faults.strike_open(Operation.READ, self._fd, len(buffer))
        return read_into(self._fd, position, buffer)

    def advise(self, position: int, size: int, advice: int) -> None:
        _advise(self._fd, position, size, advice)

    def close(self) -> None:
        os.close(self._fd)


def _read_through(
    file: _OpenFile, position: int, size: int, rules: CacheRules, course: Course | None
) -> int | None:
    try:
        # Told each time: the descriptor may be another one by now, and the rules others.
        file.advise(0, 0, _ADVICE.get(rules.ahead, os.POSIX_FADV_NORMAL))
        return first_bad(file, position, size, course)
    except OSError as error:
        # What the disk cannot read is as bad as what it reads wrong.
        return position if error.errno == errno.EIO else None
    finally:
        if rules.reads_next:
            file.advise(position + size, size, os.POSIX_FADV_WILLNEED)
        file.close()


def _drop(fd: int, position: int, size: int) -> None:
    _advise(fd, position, size, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def _advise(fd: int, position: int, size: int, advice: int) -> None:
    with contextlib.suppress(OSError):  # this file system takes none
        os.posix_fadvise(fd, position, size, advice)
