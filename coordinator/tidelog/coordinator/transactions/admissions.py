"""Telling leaders which partitions are part of a transaction, before they ask.

Between the answer to AddPartitionsToTxn and the producer's first batch there is time for one
message to each leader, and it saves a question of every one of their partitions. (KIP-890)

It must not be heard behind the marker of its transaction, for then nobody would end what it lets
in. So it goes out when the record that has the partition is committed: whoever sends the markers
knows of the partition then, and sends them behind it. Messages of one session are heard in their
order, those of an earlier session not at all.
"""

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter

from tidelog.coordinator.transactions.around import Around, Session
from tidelog.coordinator.transactions.requests import AddPartitions
from tidelog.kernel.ids import BrokerId, Epoch
from tidelog.kernel.limits import TRANSACTION_ADMITS_UNHEARD_MAX
from tidelog.wire.transactions import Admit, Admitted


class Admissions:
    """Invariant: nobody was told of more partitions than the limit since its last answer to a Mark;
    who answers one has heard all that was said before it."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._unheard: dict[BrokerId, tuple[Session, int]] = {}

    def tell(self, added: AddPartitions) -> None:
        """That these are part of the transaction is committed; its markers go out later."""
        for session, places in groupby(sorted(self._places(added)), itemgetter(0)):
            known, count = self._unheard.get(session.broker, (session, 0))
            count = count if known == session else 0
            left = max(0, TRANSACTION_ADMITS_UNHEARD_MAX - count)
            partitions = tuple(Admitted(*place) for _, place in islice(places, left))
            if partitions:
                self._unheard[session.broker] = (session, count + len(partitions))
                who = (added.producer_id, added.producer_epoch)
                admit = Admit(session.session, self._around.epoch, *who, partitions)
                self._around.send(session, admit)

    def _places(self, added: AddPartitions) -> Iterator[tuple[Session, tuple[str, int, Epoch]]]:
        """Those that somebody leads who can be spoken to."""
        around = self._around
        for name, partition in added.partitions:
            topic = around.image.names.get(name)
            if topic is None or partition >= len(topic.partitions):
                continue
            target = around.target(topic, partition)
            if target is not None:
                yield target.session, (name, partition, target.leader_epoch)

    def heard(self, session: Session) -> None:
        """It has answered a Mark."""
        self._unheard.pop(session.broker, None)
