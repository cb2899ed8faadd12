"""Records that come at a pace, and a producer beside the test, so that things happen meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from harness.clients.facts import DEADLINE_S, Record, now_ms

ResultT = TypeVar("ResultT")


class Aside(Generic[ResultT]):
    """Work in a thread that nobody waits for: a client that hangs must not hang the test run."""

    def __init__(self, work: Callable[[], ResultT]) -> None:
        self._work = work
        self._ended: SimpleQueue[ResultT | BaseException] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def result(self) -> ResultT:
        """What the work returned, or what it raised; AssertionError after the deadline."""
        try:
            ended = self._ended.get(timeout=DEADLINE_S)
        except Empty:
            raise AssertionError(f"not done after {DEADLINE_S} s") from None
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _run(self) -> None:
        try:
            ended: ResultT | BaseException = self._work()
        except BaseException as failure:  # noqa: BLE001 -- raised again where the test waits
            ended = failure
        self._ended.put(ended)


class Feed:
    """Hands records over until told to end; each says its place in the order."""

    def __init__(self, *, pause_s: float) -> None:
        self.handed = 0
        self._pause_s = pause_s
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def __iter__(self) -> Iterator[Record]:
        while not self._ended.is_set():
            yield Record(value_of(self.handed), timestamp_ms=now_ms())
            self.handed += 1
            if self.handed % 4 == 0:
                self._ended.wait(self._pause_s)

    def wait_for(self, handed: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.handed < handed:
            assert time.monotonic() < deadline, f"{self.handed} of {handed} handed over"
            self._ended.wait(0.01)


def value_of(place: int) -> bytes:
    return b"%d" % place
