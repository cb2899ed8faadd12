"""Threads that flush the files of a round side by side. A shell.

A round wakes as many threads as it has files for, and the event loop once.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from tidelog.kernel.files import Syncable
from tidelog.node.log.rounds import Round

THREADS_MAX: Final = 8
"""More files than that wait for each other: the journal commits once for those under way."""


class Job:
    """One round under way. Whoever takes the last of its work does what comes after all of it."""

    def __init__(self, work: Round, done: Callable[[BaseException | None], None]) -> None:
        self._chains = iter(work.chains)
        self._last = work.last
        self._left = max(1, len(work.chains))
        self._is_single = self._left == 1
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._done = done

    def run(self) -> None:
        """In any number of threads: take work until there is none."""
        if self._is_single:  # not "one is left": another thread may be about to end that one
            self._take(next(self._chains, ()))
            return
        # An iterator over a tuple gives each of its items to one thread.
        for chain in self._chains:
            self._take(chain)

    def _take(self, chain: tuple[Syncable, ...]) -> None:
        failure = _sync(chain)
        with self._lock:
            self._failure = self._failure or failure
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._done(self._failure or _sync(self._last))


class FlushThreads:
    """Of one log directory: they begin with the first round that has work for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._threads = 0

    def flush(self, work: Round, done: Callable[[BaseException | None], None]) -> None:
        """`done` gets, on the loop, why it failed, or None: all of it is on stable storage."""

        def ended(failure: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(done, failure)

        job = Job(work, ended)
        wanted = min(THREADS_MAX, max(1, len(work.chains)))
        while self._threads < wanted:
            # A daemon: a broker that is at its end waits for no disk.
            threading.Thread(
                target=self._run, name=f"flush-{self._name}-{self._threads}", daemon=True
            ).start()
            self._threads += 1
        for _ in range(wanted):
            self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._jobs.get().run()


def _sync(chain: tuple[Syncable, ...]) -> BaseException | None:
    for file in chain:
        try:
            file.sync()
        except FileNotFoundError:
            pass  # a topic deleted meanwhile took its files along: there is nothing left to keep
        except BaseException as failure:  # noqa: BLE001 -- raised on the loop, where it is seen
            return failure
    return None
