"""Another broker of a `HandlerBench`, as replication hears it: follower or leader, by messages."""

from harness.machines.brokers import ME, HandlerBench
from tidelog.kernel.ids import NO_EPOCH, BrokerId, Epoch, Incarnation, Offset, Partition, Uuid
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    StopKind,
    TopicCreated,
)
from tidelog.wire.replication import (
    Ack,
    Attach,
    Attached,
    Bytes,
    Head,
    Message,
    Open,
    Opened,
    Payload,
    State,
    decode,
    encode,
)

CHANNEL = 1
_TOPICS_FROM = 1_000


class Peer:
    """One broker beside the bench's, registered and alive. Speaks of one partition at a time."""

    def __init__(
        self, bench: HandlerBench, broker: int, rack: str | None = None, *, unfenced: bool = True
    ) -> None:
        self.id = BrokerId(broker)
        self._bench = bench
        self._incarnation = Incarnation(100 + broker)
        self._stream = 0
        self._channel = CHANNEL
        self._epoch = Offset(bench.image.offset + 1)
        registered = BrokerRegistered(
            broker=self.id,
            incarnation=self._incarnation,
            epoch=self._epoch,
            host="127.0.0.1",
            port=9092 + broker,
            rack=rack,
            log_dirs=(),
            stopped=StopKind.FIRST_START,
            fenced=True,
        )
        bench.replay(registered)
        if unfenced:
            self.unfence()

    def unfence(self) -> None:
        self._bench.replay(BrokerUnfenced(self.id, self._epoch))

    def fence(self) -> None:
        self._bench.replay(BrokerFenced(self.id, self._epoch))

    # -- as a follower of the bench

    def follow(self, topic_id: Uuid, leader_epoch: int = 0, *, end: int = 0) -> None:
        """Attach to partition 0, with a log that agrees up to `end`."""
        self._stream, self._channel = self._stream + 1, CHANNEL
        self._say(Open(self._epoch))
        last_epoch = Epoch(leader_epoch) if end else NO_EPOCH
        epoch = Epoch(leader_epoch)
        zero = Partition(0)
        self._say(Attach(CHANNEL, topic_id, zero, epoch, last_epoch, Offset(end), Offset(0)))

    def ack(self, end: int, log_start: int = 0) -> None:
        """Vouch for all below `end`."""
        self._say(Ack(self._channel, Offset(end), Offset(log_start)))

    # -- as the leader the bench follows

    def lead(self) -> None:
        """Take the bench as a follower, from the start of an empty log."""
        self._bench.replication.tick(self._bench.now)
        for to, parts in self._bench.replication.take_sends():
            head, _ = decode(parts)
            if to == self.id:
                self._stream = head.stream
        self._say(Opened(0, 0))
        for _, parts in self._bench.replication.take_sends():
            for message, _ in decode(parts).entries:
                if isinstance(message, Attach):
                    self._channel = message.channel
        self._say(Attached(self._channel, Offset(0), Offset(0), Offset(0)))

    def send(self, after: int, batch: bytes, high_watermark: int) -> None:
        """The leader has appended a batch behind `after`."""
        entry = Bytes(self._channel, Offset(after), Offset(high_watermark), Offset(0))
        self._say(entry, batch)

    def state(self, end: int, high_watermark: int, log_start: int = 0) -> None:
        offsets = (Offset(end), Offset(high_watermark), Offset(log_start))
        self._say(State(self._channel, *offsets, ack_wanted=False))

    def _say(self, message: Message, payload: Payload | None = None) -> None:
        head = Head(self.id, self._incarnation, Incarnation(1), self._stream)
        self._bench.replication.received(self._bench.now, encode(head, [(message, payload)]))


def replicated(
    bench: HandlerBench,
    name: str,
    view: PartitionView,
    *,
    min_in_sync: int = 1,
) -> Uuid:
    """A topic of one partition, as the view says."""
    topic_id = Uuid((_TOPICS_FROM + len(bench.image.topics)).to_bytes(16, "big"))
    bench.replay(
        TopicCreated(topic_id, name),
        ConfigChanged(ResourceKind.TOPIC, name, "min.insync.replicas", str(min_in_sync)),
        PartitionCreated(topic_id, Partition(0), view),
    )
    return topic_id


def shown(
    *isr: int,
    leader: int = ME,
    epoch: int = 0,
    change: int = 0,
    replicas: tuple[int, ...] = (0, 1, 2),
) -> PartitionView:
    """A partition on these replicas; `change` is its partition epoch."""
    return PartitionView(
        replicas=tuple(BrokerId(one) for one in replicas),
        isr=tuple(BrokerId(one) for one in isr),
        leader=BrokerId(leader),
        leader_epoch=Epoch(epoch),
        partition_epoch=Epoch(change),
    )


def change(bench: HandlerBench, topic_id: Uuid, view: PartitionView) -> None:
    """The coordinator decided anew."""
    bench.replay(PartitionChanged(topic_id, Partition(0), view))


def told_starts(bench: HandlerBench) -> dict[BrokerId, Offset]:
    """The log start in the last state that each follower is sent now."""
    return {
        to: message.log_start
        for to, parts in bench.replication.take_sends()
        for message, _ in decode(parts).entries
        if isinstance(message, State)
    }
