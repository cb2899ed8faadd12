"""The transaction coordinator without its sockets: events in, messages to brokers out.

Each partition of `__transaction_state` is found, fenced, loaded and opened on its own; what brokers
pass on is decided in the partition that keeps its transactional id. Once the log holds that a
transaction is prepared, its markers go out; once they are committed, that it is complete goes into
the log, and its producer hears that it has ended.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from tidelog.coordinator.transactions.admissions import Admissions
from tidelog.coordinator.transactions.around import Around, Session
from tidelog.coordinator.transactions.events import (
    BrokerDown,
    BrokerUp,
    Effect,
    Event,
    IdsGiven,
    IdsRefused,
    ImageChanged,
    Received,
    SendTo,
    Tick,
)
from tidelog.coordinator.transactions.markers import Key, Markers
from tidelog.coordinator.transactions.partitions import Partitions
from tidelog.coordinator.transactions.questions import Questions
from tidelog.coordinator.transactions.records import Transaction, TxnRecord
from tidelog.coordinator.transactions.requests import MarkersWritten, Reply
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.coordinator.transactions.state_partition import StatePartition
from tidelog.coordinator.transactions.stock import Stock
from tidelog.kernel.ids import Epoch, Incarnation, Partition, RequestId
from tidelog.kernel.instant import Instant
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.transactions import (
    Appended,
    Chunk,
    Forward,
    Hello,
    Marked,
    Welcome,
)


class Transactions:
    """A machine.

    Invariant: nothing leaves it under another epoch than its own; once it has said Stop, nothing
    leaves it at all.
    """

    def __init__(
        self,
        image: MetadataImage,
        incarnation: Incarnation,
        epoch: Epoch,
        settings: TransactionSettings,
        wall_ms: Callable[[Instant], int],
    ) -> None:
        self.committed = 0
        """Transactions that came to their end here, since this coordinator began."""
        self.aborted = 0
        self._incarnation = incarnation
        self._around = Around(image, epoch, settings, wall_ms)
        self._stock = Stock(self._around)
        self._markers = Markers(
            self._around, is_current=self._stock.is_current, on_written=self._on_written
        )
        self._partitions = Partitions(
            self._around,
            on_reply=self._on_reply,
            on_committed=self._on_committed,
            on_open=self._on_open,
        )
        self._admissions = Admissions(self._around)
        self._questions = Questions(self._around, self._partitions, self._admissions)
        self._retry = False
        """What some questions wait for may be there."""

    @property
    def open_transactions(self) -> int:
        """Those that have not come to their end."""
        return self._partitions.open_transactions

    def partition(self, partition: Partition) -> StatePartition | None:
        """One partition of `__transaction_state`, if the topic has it."""
        return self._partitions.get(partition)

    def start(self, now: Instant) -> Sequence[Effect]:
        """Begin. Call once, before any event."""
        return self.step_all(now, (ImageChanged(),))

    def step(self, now: Instant, event: Event) -> Sequence[Effect]:
        return self.step_all(now, (event,))

    def step_all(self, now: Instant, events: Sequence[Event]) -> Sequence[Effect]:
        """Take what has come together: what it brings about goes out together, too."""
        for event in events:
            if not self._around.stopped:
                self._take(now, event)
        if not self._around.stopped:
            self._go_on(now)
        effects, self._around.out = self._around.out, []
        if self._around.stopped:
            return [one for one in effects if not isinstance(one, SendTo)]
        return effects

    def deadline(self) -> Instant | None:
        return None if self._around.stopped else self._around.alarm

    # -- events

    def _take(self, now: Instant, event: Event) -> None:
        match event:
            case Received(broker, message):
                session = self._around.sessions.get(broker)
                if session is not None and not isinstance(message, Hello):
                    self._received(now, session, message)
            case BrokerUp() | BrokerDown():
                self._connection(now, event)
            case ImageChanged():
                self._image_changed(now)
            case IdsGiven(first, count):
                self._stock.given(first, count)
                self._retry = True
                self._prove(now)
            case IdsRefused():
                self._stock.refused(now)
            case Tick():
                self._tick(now)
            case _:
                assert_never(event)

    def _received(
        self, now: Instant, session: Session, message: Forward | Appended | Marked | Chunk
    ) -> None:
        if message.to != self._incarnation:
            return  # meant for another life
        match message:
            case Forward():
                self._questions.forward(now, session, message)
            case Appended() | Chunk():
                self._partitions.answered(now, message)
            case Marked():
                self._admissions.heard(session)
                self._markers.marked(now, session, message)
            case _:
                assert_never(message)

    def _connection(self, now: Instant, event: BrokerUp | BrokerDown) -> None:
        known = self._around.sessions.get(event.broker)
        if isinstance(event, BrokerDown):
            if known is None or known.incarnation != event.incarnation:
                return
            del self._around.sessions[event.broker]
        else:
            session = Session(event.broker, event.incarnation, event.session)
            if known is not None and known[1:] >= session[1:]:
                return  # it came late
            self._around.sessions[event.broker] = session
            welcome = Welcome(session.session, self._incarnation, self._around.epoch)
            self._around.send(session, welcome)
        self._look(now)

    def _image_changed(self, now: Instant) -> None:
        image, epoch = self._around.image, self._around.epoch
        if image.transactions_epoch > epoch:
            self._around.stop(f"there is a transaction coordinator of epoch {epoch + 1} or later")
            return
        self._stock.prove()
        self._look(now)

    def _look(self, now: Instant) -> None:
        """Who leads what, and can be spoken to, may be another one."""
        self._partitions.look(now)
        self._markers.look(now)
        self._retry = True

    def _prove(self, now: Instant) -> None:
        if self._stock.prove():
            self._markers.look(now)

    def _tick(self, now: Instant) -> None:
        self._around.alarm = None
        self._partitions.tick(now)
        self._markers.tick(now)
        self._questions.tick(now)
        self._stock.tick(now)

    def _go_on(self, now: Instant) -> None:
        if self._retry:
            self._retry = False
            self._questions.retry(now)
        self._partitions.flush(now)
        self._markers.flush()
        self._stock.flush()

    def _on_reply(self, now: Instant, asked: RequestId, reply: Reply) -> None:
        self._questions.replied(now, asked, reply)

    # -- a transaction's way to its end

    def _on_open(self, now: Instant, place: StatePartition) -> None:
        assert place.shard is not None
        self._retry = True
        self._markers.loaded(now, place.index, dict(place.shard.prepared()))

    def _on_committed(
        self, now: Instant, partition: Partition, records: Sequence[TxnRecord]
    ) -> None:
        for record in records:
            value, key = record.value, (partition, record.transactional_id)
            if value is None:
                continue
            if value.state.is_prepared:
                self._markers.owe(now, key, value)
            elif value.state.is_complete:
                self._markers.settled(key)
                self.committed += value.is_committed
                self.aborted += not value.is_committed

    def _on_written(self, now: Instant, key: Key, prepared: Transaction) -> None:
        """Every marker is committed."""
        partition, transactional_id = key
        place = self._partitions.get(partition)
        if place is not None and place.is_open:  # else it is loaded, and this comes again
            self._questions.tell(now, place, MarkersWritten(transactional_id, prepared))
            self._questions.ended(key, prepared)
