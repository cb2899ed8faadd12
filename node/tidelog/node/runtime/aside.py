"""Work that takes the processor for long, in a thread, one piece after the other. A shell."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from tidelog.kernel.instant import Instant

_T = TypeVar("_T")


class Aside:
    """Who asks has one piece under way at most: so many wait as there are connections, no more.

    The thread is a daemon: a broker that stops waits for no piece, for nobody was answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "aside") -> None:
        self._loop = loop
        self._name = name
        self._asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, work: Callable[[], _T], done: Callable[[Instant, _T], None]) -> None:
        """`work` touches nothing that the loop does; `done` gets its result on the loop."""
        self._asked.put(partial(self._do, work, done))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._asked.get()()

    def _do(self, work: Callable[[], _T], done: Callable[[Instant, _T], None]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 -- raised again on the loop, where it is a bug
            self._tell(partial(_raise, error))
            return
        self._tell(lambda: done(Instant(time.monotonic_ns()), result))

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what)


def _raise(error: Exception) -> None:
    raise error
