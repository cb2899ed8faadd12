"""Blocks of producer ids, drawn ahead; and what a drawn block proves of the metadata image.

The controller writes down each block that it gives. Once the image shows a block that was asked for
after some moment, it shows everything that the cluster had decided by that moment: a topic that the
image does not have then is deleted, and not merely one that it has not heard of yet.
"""

from tidelog.coordinator.transactions.around import Around
from tidelog.coordinator.transactions.events import WantIds
from tidelog.kernel.ids import Partition, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import TRANSACTION_AGAIN_MS


class Stock:
    """Invariant: at most one block is asked for at a time."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._asked = False
        self._again: Instant | None = None
        """The controller refused, and is asked again then."""
        self._wanted: set[Partition] = set()
        """Partitions of `__transaction_state` that want a proof, by a block asked for from now."""
        self._awaited: set[Partition] = set()
        """By the block that is asked for."""
        self._drawn: list[tuple[int, set[Partition]]] = []
        """By blocks that the image does not show yet, each with what follows it."""
        self._proven: set[Partition] = set()

    def is_current(self, partition: Partition) -> bool:
        """Whether the image is newer than what this partition held when it was loaded. If that is
        not known, it is about to be."""
        if partition in self._proven:
            return True
        self._wanted.add(partition)
        return False

    def given(self, first: ProducerId, count: int) -> None:
        self._asked = False
        self._around.producer_ids.add(first, count)
        if self._awaited:
            self._drawn.append((first + count, self._awaited))
            self._awaited = set()

    def refused(self, now: Instant) -> None:
        self._asked = False
        self._wanted |= self._awaited
        self._awaited = set()
        self._again = Instant(now + ms(TRANSACTION_AGAIN_MS))
        self._around.wake_at(self._again)

    def prove(self) -> bool:
        """Whether the image has come to show something that was waited for."""
        shown = self._around.image.producer_id_next
        shows = [one for one in self._drawn if one[0] <= shown]
        self._drawn = [one for one in self._drawn if one[0] > shown]
        for _, partitions in shows:
            self._proven |= partitions
        return bool(shows)

    def tick(self, now: Instant) -> None:
        if self._again is not None and self._again <= now:
            self._again = None
        self._around.wake_at(self._again)

    def flush(self) -> None:
        """Ask for the next block where one is wanted."""
        if self._asked or self._again is not None:
            return
        if self._around.producer_ids.is_low or self._wanted:
            self._asked = True
            self._awaited, self._wanted = self._wanted, set()
            self._around.out.append(WantIds())
