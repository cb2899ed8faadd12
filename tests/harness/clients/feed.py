"""Records that come at a pace, so that something can happen between them."""

import threading
import time
from collections.abc import Iterator

from harness.clients.facts import DEADLINE_S, Record, now_ms


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
