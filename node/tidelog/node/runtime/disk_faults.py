"""Makes a disk sick where it is asked to: waits and raises before an operation is done. (shell)

The board's word says whether anything is on; only then a page of faults is read. Whatever thread
touches a file pays for it, as with a disk: a slow write holds up the event loop, a slow flush its
thread.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import board_name
from tidelog.kernel.limits import DISK_FAULT_DELAY_MAX_MS
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.fault_layout import (
    ANY,
    DiskFault,
    Operation,
    Sheet,
    Striker,
    Touch,
    group_of,
)
from tidelog.node.ipc.fault_memory import FaultPage
from tidelog.node.runtime.healthy import Healthy

_DELAY_MAX_NS: Final = DISK_FAULT_DELAY_MAX_MS * 1_000_000
_STEP_NS: Final = 50_000_000
_BY_DESCRIPTOR: Final = "/proc/self/fd/"


class DiskFaults(Healthy):
    """The faults of one broker's disks, in one of its processes."""

    def __init__(
        self,
        board: Board,
        run_id: str,
        broker: int,
        directories: Sequence[str],
        striker: Striker = Striker.BROKER,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(board.disks.word(broker))
        self._run_id = run_id
        self._broker = broker
        self._given = tuple(directories)
        self._striker = striker
        self._sleep = sleep
        self._lock = threading.Lock()
        self._page: FaultPage | None = None
        self._sheet = Sheet()
        self._free_at: dict[int, int] = {}
        """By the number of a fault: until when the disk is busy with what came before."""

    def strike(self, operation: Operation, path: str, size: int = 0) -> None:
        with self._lock:
            page = self._follow()
            if page is None:
                return
            hits = []
            for slot, fault in self._hitting(page, self._touch(operation, path)):
                page.struck.add(slot, fault, self._striker)
                hits.append(fault)
            wait_ns = max((self._wait_ns(fault, size) for fault in hits), default=0)
        self._wait(min(wait_ns, _DELAY_MAX_NS))
        for fault in hits:
            if fault.error:
                raise OSError(fault.error, os.strerror(fault.error), path)

    def strike_open(self, operation: Operation, fd: int, size: int = 0) -> None:
        self.strike(operation, _path_of(fd), size)

    def hits_open(self, operation: Operation, fd: int) -> bool:
        with self._lock:
            page = self._follow()
            if page is None:
                return False
            return any(True for _ in self._hitting(page, self._touch(operation, _path_of(fd))))

    def helper(self) -> list[str]:
        return [self._run_id, str(self._broker), *self._given]

    def is_full(self, directory: str) -> bool:
        if not self.on[0]:
            return False
        with self._lock:
            page = self._follow()
            if page is None:
                return False
            hits = self._hitting(page, self._touch(Operation.WRITE, directory))
            return any(fault.error == errno.ENOSPC for _, fault in hits)

    def close(self) -> None:
        if self._page is not None:
            self._page.close()

    def _wait(self, left_ns: int) -> None:
        """A little at a time: who is healed meanwhile waits no more."""
        while left_ns > 0 and self.on[0]:
            step_ns = min(left_ns, _STEP_NS)
            self._sleep(step_ns / 1e9)
            left_ns -= step_ns

    def _follow(self) -> FaultPage | None:
        """Know what the page says now. One that cannot be read yet, for it is being written, is
        looked at again the next time."""
        if self.on[0] != self._sheet.generation:
            with contextlib.suppress(CorruptError):
                self._page = self._page or FaultPage.open(self._run_id, self._broker)
                if self._page is not None:
                    self._sheet = self._page.read()
        return self._page

    def _hitting(self, page: FaultPage, touch: Touch) -> Iterator[tuple[int, DiskFault]]:
        now_ns = time.monotonic_ns()
        for slot, fault in enumerate(self._sheet.faults):
            if fault.is_of(touch) and not fault.is_over(now_ns, page.struck.count(slot, fault)):
                yield slot, fault

    def _wait_ns(self, fault: DiskFault, size: int) -> int:
        if not fault.bytes_per_second or not size:
            return fault.delay_ns
        now = time.monotonic_ns()
        begins = max(now, self._free_at.get(fault.number, now))
        ends = begins + size * 1_000_000_000 // fault.bytes_per_second
        self._free_at[fault.number] = min(ends, now + _DELAY_MAX_NS)
        return fault.delay_ns + ends - now

    def _touch(self, operation: Operation, path: str) -> Touch:
        if path.startswith(_BY_DESCRIPTOR):
            path = os.path.realpath(path)
        for number, top in enumerate(self._given):
            for one in dict.fromkeys((top, os.path.realpath(top))):
                if path == one:
                    return Touch(operation, number, "", None)
                if path.startswith(f"{one}/"):
                    return _inside(operation, number, path[len(one) + 1 :])
        return Touch(operation, ANY, "", None)


def _path_of(fd: int) -> str:
    """Of an open file, also of one that has no name any more."""
    path = os.readlink(f"{_BY_DESCRIPTOR}{fd}")  # noqa: PTH115 -- texts, as in `disk.py`
    return path.removesuffix(" (deleted)")


def _inside(operation: Operation, directory: int, path: str) -> Touch:
    """Below a log directory: of one of its partitions, or beside them."""
    partition, slash, name = path.partition("/")
    if slash:
        return Touch(operation, directory, partition, group_of(name))
    is_directory = operation in {Operation.SYNC, Operation.CREATE} and _is_partition(partition)
    if is_directory:
        return Touch(operation, directory, partition, None)
    return Touch(operation, directory, "", group_of(partition))


def _is_partition(name: str) -> bool:
    _, dash, number = name.rpartition("-")
    return bool(dash) and number.isascii() and number.isdecimal()


def open_faults(told: Sequence[str], striker: Striker) -> Healthy:
    """In the process that was told it by `helper`."""
    if not told:
        return Healthy()
    run_id, broker, *directories = told
    board = Board.open(board_name(run_id))
    return DiskFaults(board, run_id, int(broker), directories, striker)
