"""A broker's disk faults in shared memory: made with the first fault, gone with the run. (shell)"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import posix_ipc

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import faults_name
from tidelog.node.ipc.board import Board, create_memory, open_memory
from tidelog.node.ipc.fault_layout import PAGE_BYTES, Sheet, Struck, read_sheet, write_sheet


class FaultPage:
    """A mapped page of faults."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name = name
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, PAGE_BYTES)
        self._view = memoryview(self._map)
        self.struck = Struck(self._view)

    @classmethod
    def open(cls, run_id: str, broker: int) -> Self | None:
        """None where there is none yet; CorruptError where it is no page of faults."""
        name = faults_name(run_id, broker)
        try:
            descriptor = open_memory(name)
        except posix_ipc.ExistentialError:
            return None
        if os.fstat(descriptor).st_size != PAGE_BYTES:
            os.close(descriptor)
            raise CorruptError(file=name, position=0, reason="not a page of disk faults")
        return cls(name, descriptor)

    @classmethod
    def make(cls, run_id: str, broker: int) -> Self:
        """The one there is, or a new one; OSError where there is no room."""
        name = faults_name(run_id, broker)
        try:
            page = cls(name, create_memory(name, PAGE_BYTES))
        except posix_ipc.ExistentialError:
            there = cls.open(run_id, broker)
            if there is None:
                raise
            return there
        write_sheet(page._view, Sheet())
        return page

    def read(self) -> Sheet:
        """CorruptError where it is being written at this moment."""
        return read_sheet(self._view, self._name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes it meanwhile; the kernel ends a dead one's lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def write(self, board: Board, broker: int, sheet: Sheet) -> None:
        """Whole, then the board's word: who sees the word finds the page."""
        write_sheet(self._view, sheet)
        board.disks.set(broker, sheet.generation if sheet.faults else 0)

    def close(self) -> None:
        self.struck.release()
        self._view.release()
        self._map.close()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
