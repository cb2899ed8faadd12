"""First batches of transactions that wait for word from the transaction coordinator. (KIP-890)

A log takes a transactional batch where the producer's transaction is open in it. Where it is not,
the coordinator is asked whether this partition is part of one; its answer holds only while the log
has seen no end of a transaction of that producer since it was asked. So there is one object for all
who ask about a producer and its epoch, which the first batch and every marker take away: whoever
comes back with one that is not there any more has an answer about the past.

The coordinator may also say of itself that a partition is part of a transaction: the answer to a
question that nobody has asked yet. It is kept in the same object, and taken away by the same.
"""

from tidelog.kernel.ids import Epoch
from tidelog.kernel.limits import PRODUCERS_PER_LOG_MAX

_ANY_SEQUENCE = (1 << 31) - 1
NO_SEQUENCE = -1
"""Of what the coordinator of a group writes for a producer."""


class Verification:
    """One or more first batches of a producer, in one epoch of it and of the leader."""

    __slots__ = ("asking", "granted", "leader_epoch", "producer_epoch", "sequence")

    def __init__(self, leader_epoch: Epoch, producer_epoch: int, sequence: int) -> None:
        self.leader_epoch = leader_epoch
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        """The lowest of them: none that comes later may be the first in the log."""
        self.asking = 0
        """Questions that are under way."""
        self.granted = False
        """Whether the coordinator has said yes, to one of them or of itself."""


class Verifications:
    """By producer and epoch; producers in the order in which they came.

    Invariant: no more than `limit`; `_count` of them, and no producer has none.
    """

    __slots__ = ("_by_producer", "_count", "_limit")

    def __init__(self, limit: int = PRODUCERS_PER_LOG_MAX) -> None:
        self._by_producer: dict[int, dict[int, Verification]] = {}
        self._count = 0
        self._limit = limit

    def __len__(self) -> int:
        return self._count

    def begin(
        self, producer_id: int, producer_epoch: int, sequence: int, leader_epoch: Epoch
    ) -> Verification:
        """The coordinator is about to be asked."""
        asked = self._find_or_make(producer_id, producer_epoch, sequence, leader_epoch)
        asked.asking += 1
        return asked

    def _find_or_make(
        self, producer_id: int, producer_epoch: int, sequence: int, leader_epoch: Epoch
    ) -> Verification:
        known = self._by_producer.get(producer_id, {}).get(producer_epoch)
        if known is not None and known.leader_epoch == leader_epoch:
            known.sequence = min(known.sequence, sequence)
            return known
        while self._count >= self._limit:
            self.end(next(iter(self._by_producer)))
        made = Verification(leader_epoch, producer_epoch, sequence)
        of_producer = self._by_producer.setdefault(producer_id, {})
        self._count += producer_epoch not in of_producer
        of_producer[producer_epoch] = made
        return made

    def admit(self, producer_id: int, producer_epoch: int, leader_epoch: Epoch) -> None:
        """The coordinator says, unasked, that the producer's transaction has this partition."""
        found = self._find_or_make(producer_id, producer_epoch, _ANY_SEQUENCE, leader_epoch)
        found.granted = True

    def admitted(
        self, producer_id: int, producer_epoch: int, leader_epoch: Epoch
    ) -> Verification | None:
        """What need not be asked about, if the coordinator has said yes."""
        known = self._by_producer.get(producer_id, {}).get(producer_epoch)
        if known is None or not known.granted or known.leader_epoch != leader_epoch:
            return None
        return known

    def holds(self, producer_id: int, verification: Verification, leader_epoch: Epoch) -> bool:
        """Whether nothing has happened since that makes its answer one about the past."""
        known = self._by_producer.get(producer_id, {}).get(verification.producer_epoch)
        return known is verification and verification.leader_epoch == leader_epoch

    def told(self, producer_id: int, verification: Verification, *, granted: bool | None) -> None:
        """The coordinator's answer to one who asked; None where it was none.

        A no is for who asked, and of that moment: a batch that comes late is refused while the
        first one of the next transaction waits for its own word. The last no leaves nothing behind.
        """
        verification.asking -= 1
        verification.granted |= granted is True
        if granted is False and not verification.granted and not verification.asking:
            self._drop(producer_id, verification)

    def _drop(self, producer_id: int, verification: Verification) -> None:
        of_producer = self._by_producer.get(producer_id, {})
        if of_producer.get(verification.producer_epoch) is verification:
            del of_producer[verification.producer_epoch]
            self._count -= 1
            if not of_producer:
                del self._by_producer[producer_id]

    def end(self, producer_id: int) -> None:
        """A transaction of the producer has begun in the log, or has ended."""
        gone = self._by_producer.pop(producer_id, None)
        if gone is not None:
            self._count -= len(gone)
