"""Appends in a thread, so that the loop never waits for a disk. (shell)

What arrives while a round is being written makes up the next one: one `fdatasync` covers them all.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tidelog.coordinator.controller.front import Append, SaveSnapshot
from tidelog.coordinator.runtime.journal import Journal
from tidelog.kernel.ids import Offset


class Writer:
    """The one user of a journal once it is loaded.

    Invariant: at most one job is in the thread; rounds and snapshots run in the order asked for.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        *,
        on_written: Callable[[list[Append]], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._on_written = on_written
        self._on_failed = on_failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._batches: list[Append] = []
        self._epoch = 0
        self._snapshot: SaveSnapshot | None = None
        self._busy = False
        self._closed = False

    def append(self, batch: Append, epoch: int) -> None:
        self._batches.append(batch)
        self._epoch = epoch
        self._next()

    def save(self, snapshot: SaveSnapshot) -> None:
        """Only the newest one matters."""
        self._snapshot = snapshot
        self._next()

    def close(self) -> None:
        """Wait for what is under way; nothing new begins, also when that is told on the loop."""
        self._closed = True
        self._thread.shutdown(wait=True)

    def _next(self) -> None:
        if self._busy or self._closed:
            return
        if self._batches:
            self._busy = True
            batches, self._batches = self._batches, []
            writing = self._loop.run_in_executor(
                self._thread, self._journal.write, batches, self._epoch
            )
            writing.add_done_callback(lambda done: self._wrote(batches, done))
        elif self._snapshot is not None:
            self._busy = True
            snapshot, self._snapshot = self._snapshot, None
            saving = self._loop.run_in_executor(self._thread, self._journal.save, snapshot)
            saving.add_done_callback(self._saved)

    def _wrote(self, batches: list[Append], done: asyncio.Future[Offset]) -> None:
        error = done.exception()
        if isinstance(error, OSError):
            self._on_failed(error)
            return
        assert done.result() == batches[-1].base + len(batches[-1].records)
        self._busy = False
        self._on_written(batches)
        self._next()

    def _saved(self, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if isinstance(error, OSError):
            self._on_failed(error)
            return
        done.result()
        self._busy = False
        self._next()
