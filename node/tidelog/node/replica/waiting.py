"""Requests that wait for a partition: fetches for bytes, produces for their replicas. No I/O."""

import heapq
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import REQUEST_FAULTS

BROKERS: Final[TopicPartition] = ("", Partition(-1))
"""No partition: the key of waiters that depend on which brokers are alive. They are looked at after
each change of the image."""
_STALE_MAX: Final = 1024
"""Woken waiters may stay in the heap of deadlines, but not more than these and twice the rest."""


class Waiter(Struct, eq=False):
    """One request that is answered when enough has come, or at its deadline."""

    keys: tuple[TopicPartition, ...]
    deadline: Instant
    wake: Callable[[Instant], None]
    """Called once; answers the request with what there is then."""
    missing: int
    """Bytes that must still come below the high watermark; a produce has its own `ready`."""
    ready: Callable[[], bool] | None = None
    grown: Callable[[TopicPartition], int] | None = None
    """How many bytes more of a partition there are to be read, for whoever may not read all that is
    below the high watermark."""
    failed: Callable[[Exception], None] | None = None
    """Called if one of these raises what a request may raise; None: that is a fault of our own."""
    done: bool = False


class Waiting:
    """Who waits for which partition.

    Invariant: a waiter stands under each of its keys until it is done, and is woken once.
    """

    def __init__(self, alarm: Callable[[Instant], None]) -> None:
        self._alarm = alarm
        """Called when the earliest deadline came nearer: `expire` is wanted then."""
        self._by_key: dict[TopicPartition, dict[Waiter, None]] = {}
        """In the order in which they came: so are they woken."""
        self._by_deadline: list[tuple[Instant, int, Waiter]] = []
        self._parked = 0
        self.count = 0

    @property
    def remembered(self) -> int:
        """Deadlines kept, of waiters that wait and of some that were woken."""
        return len(self._by_deadline)

    def park(self, waiter: Waiter) -> None:
        assert not waiter.done
        for key in waiter.keys:
            self._by_key.setdefault(key, {})[waiter] = None
        # The number breaks ties: waiters themselves have no order.
        self._parked += 1
        self.count += 1
        earliest = self.deadline()
        heapq.heappush(self._by_deadline, (waiter.deadline, self._parked, waiter))
        if earliest is None or waiter.deadline < earliest:
            self._alarm(waiter.deadline)
        if len(self._by_deadline) > 2 * self.count + _STALE_MAX:
            self._by_deadline = [entry for entry in self._by_deadline if not entry[2].done]
            heapq.heapify(self._by_deadline)

    def wait_also(self, waiter: Waiter, keys: Iterable[TopicPartition]) -> None:
        """Have a parked waiter wait for more partitions."""
        if waiter.done:
            return
        more = [key for key in keys if waiter not in self._by_key.get(key, ())]
        for key in more:
            self._by_key.setdefault(key, {})[waiter] = None
        waiter.keys = (*waiter.keys, *more)

    def cancel(self, waiter: Waiter) -> None:
        """Nobody wants its answer any more."""
        if not waiter.done:
            self._forget(waiter)

    def deadline(self) -> Instant | None:
        """When the next waiter's time is up."""
        heap = self._by_deadline
        while heap and heap[0][2].done:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def advanced(self, now: Instant, key: TopicPartition, size: int) -> None:
        """The partition's high watermark rose over so many bytes."""
        waiters = self._by_key.get(key)
        if not waiters:
            return
        woken: list[Waiter] = []
        faults: list[tuple[Waiter, Exception]] = []
        for waiter in waiters:
            try:
                grown = waiter.grown
                waiter.missing -= size if grown is None else grown(key)
                if waiter.ready() if waiter.ready else waiter.missing <= 0:
                    woken.append(waiter)
            except REQUEST_FAULTS as fault:
                faults.append((waiter, fault))
        self._end(faults)
        self._wake(now, woken)

    def _end(self, faults: Iterable[tuple[Waiter, Exception]]) -> None:
        """Those that failed at being looked at."""
        for waiter, raised in faults:
            if not waiter.done:  # the end of one's connection may be that of another one
                failed = waiter.failed
                self._forget(waiter)
                _tell(failed, raised)

    def disturbed(self, now: Instant, key: TopicPartition) -> None:
        """The partition lost its leader or is gone: all who wait for it must look again."""
        self._wake(now, list(self._by_key.get(key, ())))

    def begins_later(self, now: Instant, key: TopicPartition) -> None:
        """Records at the partition's start are gone: fetches must look again."""
        self._wake(now, [one for one in self._by_key.get(key, ()) if one.ready is None])

    def expire(self, now: Instant) -> None:
        """Wake whose time is up."""
        heap = self._by_deadline
        late: list[Waiter] = []
        while heap and heap[0][0] <= now:
            waiter = heapq.heappop(heap)[2]
            if not waiter.done:
                late.append(waiter)
        self._wake(now, late)

    def _wake(self, now: Instant, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            if not waiter.done:
                wake, failed = waiter.wake, waiter.failed
                self._forget(waiter)
                try:
                    wake(now)
                except REQUEST_FAULTS as fault:
                    _tell(failed, fault)

    def _forget(self, waiter: Waiter) -> None:
        waiter.done = True
        self.count -= 1
        for key in waiter.keys:
            under = self._by_key[key]
            under.pop(waiter, None)
            if not under:
                del self._by_key[key]
        # It may stay in the heap until its deadline: let go of the request it holds.
        waiter.keys, waiter.wake, waiter.ready, waiter.failed = (), _nothing, None, None


def _tell(failed: Callable[[Exception], None] | None, fault: Exception) -> None:
    """A request's fault ends that request; the others that wait are served."""
    if failed is None:
        raise fault
    failed(fault)


def _nothing(_now: Instant) -> None:
    """What is left of a waiter that is done."""
