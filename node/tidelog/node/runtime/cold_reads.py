"""Whether a range of a file is in the page cache, and bringing it there off the event loop.

`sendfile` on a cold range would stop every client of the broker until the disk answered.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

_CHUNK_BYTES: Final = 1024 * 1024
_PROBE: Final = bytearray(1)


class ColdReads:
    """Probes ranges, and reads cold ones in the loop's threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.warmed = 0
        """Ranges that had to be read first."""

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        """Whether both ends are in memory: the kernel reads ahead, so the middle is then too."""
        try:
            os.preadv(fd, [_PROBE], position, os.RWF_NOWAIT)
            if size > 1:
                os.preadv(fd, [_PROBE], position + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            # This file system cannot tell; sendfile will, or the read fails for its own reason.
            return True
        return True

    def warm(self, fd: int, position: int, size: int, done: Callable[[], None]) -> None:
        """Read the range into the cache, then call `done` on the loop."""
        self.warmed += 1
        # The file may be closed while the thread reads (the number of open files is bounded).
        own = os.dup(fd)
        future = self._loop.run_in_executor(None, _read_through, own, position, size)
        future.add_done_callback(lambda _: done())


def _read_through(fd: int, position: int, size: int) -> None:
    try:
        stop = position + size
        chunk = bytearray(min(_CHUNK_BYTES, size))
        while position < stop:
            got = os.preadv(fd, [memoryview(chunk)[: stop - position]], position)
            if got == 0:
                return
            position += got
    except OSError:
        return  # sendfile meets the same error and ends the connection that asked
    finally:
        os.close(fd)
