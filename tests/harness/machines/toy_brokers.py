"""Brokers as a transaction coordinator sees them: they pass requests on, append, read and mark.

The rules are those of `wire/transactions.py`: a lower epoch than was heard of is refused, and so is
another leader epoch; the reserved producer is checked as any other; what a later metadata image
speaks of waits; of a connection that has ended nothing is done or said.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, assert_never

from harness.machines.toy_transaction_logs import (
    Data,
    End,
    check,
    end_offset,
    last_of,
    writer_of,
)
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    Partition,
    TopicPartition,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import place_batch, read_header
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Admit,
    Answered,
    Append,
    Appended,
    Chunk,
    Failed,
    Forward,
    FromTransactions,
    Hello,
    Mark,
    Marked,
    Marker,
    Read,
    ToTransactions,
    Welcome,
)

if TYPE_CHECKING:
    from harness.machines.toy_coordinators import Connection
    from harness.machines.transaction_world import World

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
DEADLINE_MS = 20_000
Done = Callable[[bytes | ErrorCode], None]


class ToyBroker:
    def __init__(self, world: "World", broker: BrokerId) -> None:
        self.world = world
        self.id = broker
        self.incarnation = Incarnation(1)
        self.alive = True
        self.image = MetadataImage()
        self.heard = Epoch(0)
        """The highest epoch of a transaction coordinator."""
        self.session = 0
        self.coordinator: Incarnation | None = None
        self.connection: Connection | None = None
        self._count = 0
        self._calls: dict[int, Done] = {}
        self._waiting: list[tuple[bytes, Instant, Done]] = []
        self._parked: list[Append | Mark | Read] = []

    # -- its connection

    def connect(self, connection: "Connection") -> None:
        self.connection = connection
        self._part()
        self._say(Hello(self.session, "toy", self.id, self.incarnation))

    def disconnected(self) -> None:
        self.connection = None
        self._part()

    def _part(self) -> None:
        self._count += 1
        self.session = self._count
        self.coordinator = None
        calls, self._calls = self._calls, {}
        for done in calls.values():
            done(AWAY)

    def _say(self, message: ToTransactions) -> None:
        if self.connection is not None:
            self.connection.up(message)

    def hear(self, epoch: Epoch) -> None:
        """Whoever has a lower one was replaced, also where it is who we speak to."""
        if epoch > self.heard:
            self.heard = epoch
            if self.connection is not None and self.coordinator is not None:
                self.world.reconnect(self)

    def image_changed(self) -> None:
        self.hear(self.image.transactions_epoch)
        for partition in self.world.partitions.values():
            partition.depose(self.id, self._led_in(partition.key))
        parked, self._parked = self._parked, []
        for request in parked:
            if request.session == self.session:
                self._serve(request)

    def dies(self) -> None:
        self.alive = False
        self._calls.clear()
        self._waiting.clear()
        self._parked.clear()
        for partition in self.world.partitions.values():
            partition.waiting = [one for one in partition.waiting if one[0] != self.id]

    # -- what it passes on

    def forward(self, frame: bytes, done: Done) -> None:
        if self.coordinator is None:
            self._waiting.append((frame, Instant(self.world.now + ms(300)), done))
            self.world.timeline.after(301, self._give_up)
            return
        self._count += 1
        self._calls[self._count] = done
        deadline = Instant(self.world.now + ms(DEADLINE_MS))
        client = Client("", "", "")
        self._say(Forward(self.coordinator, self._count, client, deadline, frame))

    def _give_up(self) -> None:
        now = self.world.now
        over = [one for one in self._waiting if one[1] <= now]
        self._waiting = [one for one in self._waiting if one[1] > now]
        for _, _, done in over:
            done(AWAY)

    def hears(self, message: FromTransactions) -> None:
        if message.session != self.session:
            return
        match message:
            case Welcome():
                if message.epoch >= self.heard:
                    self.heard = message.epoch
                    self.coordinator = message.coordinator
                    waiting, self._waiting = self._waiting, []
                    for frame, _, done in waiting:
                        self.forward(frame, done)
            case Answered(_, call, frame):
                self._calls.pop(call, _nobody)(frame)
            case Failed(_, call, code):
                self._calls.pop(call, _nobody)(code)
            case Append() | Mark() | Read():
                if self.coordinator is not None:
                    self._serve(message)
            case Admit():
                pass  # producers here write what they have added, and nothing else
            case _:
                assert_never(message)

    # -- what it is asked

    def _serve(self, request: Append | Mark | Read) -> None:
        if request.epoch < self.heard:
            self._refuse(request, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
            return
        self.heard = request.epoch
        if self._is_ahead(request):
            self._parked.append(request)
            return
        match request:
            case Append():
                self._append(request)
            case Mark():
                self._mark(request)
            case Read():
                self._read(request)
            case _:
                assert_never(request)

    def _refuse(self, request: Append | Mark | Read, code: ErrorCode) -> None:
        to, call = self.coordinator, request.call
        assert to is not None
        match request:
            case Append():
                self._say(Appended(to, call, code, NO_OFFSET))
            case Mark():
                self._say(Marked(to, call, (code,) * len(request.markers)))
            case Read():
                self._say(Chunk(to, call, code, NO_OFFSET, NO_OFFSET, 0, request.offset, b""))
            case _:
                assert_never(request)

    def _is_ahead(self, request: Append | Mark | Read) -> bool:
        places = (
            [((one.topic, Partition(one.partition)), one.leader_epoch) for one in request.markers]
            if isinstance(request, Mark)
            else [((STATE_TOPIC, Partition(request.partition)), request.leader_epoch)]
        )
        return any(
            topic is not None and epoch > topic.partitions[key[1]].leader_epoch
            for key, epoch in places
            for topic in (self.image.names.get(key[0]),)
        )

    def _led_in(self, key: TopicPartition) -> Epoch | None:
        """The epoch in which it leads, as far as it knows."""
        topic = self.image.names.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        if key not in self.world.partitions:
            return None
        view = topic.partitions[key[1]]
        return view.leader_epoch if view.leader == self.id else None

    def _leads(self, key: TopicPartition, epoch: Epoch) -> bool:
        return self._led_in(key) == epoch

    def _enough(self, key: TopicPartition) -> bool:
        view = self.image.names[key[0]].partitions[key[1]]
        return len(view.isr) >= min(2, len(view.replicas))

    def _append(self, request: Append) -> None:
        key = (STATE_TOPIC, Partition(request.partition))
        partition = self.world.partitions[key]
        header = read_header(request.batch)
        if not self._leads(key, request.leader_epoch):
            self._refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not self._enough(key):
            self._refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        code = check(partition.logs[self.id], header)
        if code is not ErrorCode.NONE:
            self._refuse(request, code)
            return
        to, session = self.coordinator, self.session
        assert to is not None
        batch = bytearray(request.batch)
        base = end_offset(partition.logs[self.id])
        place_batch(batch, 0, base_offset=base, leader_epoch=request.leader_epoch)
        end = partition.append(self.id, bytes(batch))

        def done(code: ErrorCode) -> None:
            self.world.on_committed()
            if self.alive and session == self.session:
                offset = NO_OFFSET if code else Offset(base + header.record_count)
                self._say(Appended(to, request.call, code, offset))

        self.world.appended(partition, self.id)
        partition.wait(self.id, request.leader_epoch, end, done)

    def _read(self, request: Read) -> None:
        key = (STATE_TOPIC, Partition(request.partition))
        if not self._leads(key, request.leader_epoch):
            self._refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        log = self.world.partitions[key].logs[self.id]
        epoch, sequence = writer_of(log)
        if epoch > request.epoch:
            self._refuse(request, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
            return
        following, batches = request.offset, b""
        if request.offset != NO_OFFSET:
            for batch in log:
                header = read_header(batch)
                if header.next_offset > request.offset and not len(batches) > request.max_bytes:
                    batches += batch
                    following = Offset(header.next_offset)
        to = self.coordinator
        assert to is not None
        end = Offset(end_offset(log))
        sequence = sequence if epoch == request.epoch else 0
        none = ErrorCode.NONE
        self._say(Chunk(to, request.call, none, Offset(0), end, sequence, following, batches))

    # -- markers, and what producers write

    def _mark(self, request: Mark) -> None:
        to, session = self.coordinator, self.session
        assert to is not None
        outcomes: list[ErrorCode | None] = [None] * len(request.markers)

        def settle(at: int, code: ErrorCode) -> None:
            outcomes[at] = code
            told = tuple(one for one in outcomes if one is not None)
            if len(told) == len(outcomes) and self.alive and session == self.session:
                self._say(Marked(to, request.call, told))

        for at, marker in enumerate(request.markers):
            self._write_marker(request, marker, partial(settle, at))

    def _write_marker(
        self, request: Mark, marker: Marker, settle: Callable[[ErrorCode], None]
    ) -> None:
        key = (marker.topic, Partition(marker.partition))
        if not self._leads(key, marker.leader_epoch):
            settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not self._enough(key):
            settle(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        partition = self.world.partitions[key]
        log = partition.logs[self.id]
        last = last_of(log, marker.producer_id)
        if last is not None and last.producer_epoch > marker.producer_epoch:
            settle(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        end = len(log)
        if not isinstance(last, End) or last.producer_epoch < marker.producer_epoch:
            # Also where nothing is to be ended: a batch that is on its way must come too late.
            entry = End(marker.producer_id, marker.producer_epoch, marker.committed, request.epoch)
            end = partition.append(self.id, entry)
            self.world.appended(partition, self.id)

        def done(code: ErrorCode) -> None:
            if self.alive:
                settle(code)

        partition.wait(self.id, marker.leader_epoch, end, done)

    def write(self, key: TopicPartition, data: Data, done: Callable[[ErrorCode], None]) -> None:
        """A transactional batch of a producer; the coordinator has said that it may come."""
        partition = self.world.partitions[key]
        epoch = partition.epoch
        if not self._leads(key, epoch):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        last = last_of(partition.logs[self.id], data.producer_id)
        if last is not None and last.producer_epoch > data.producer_epoch:
            done(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        end = partition.append(self.id, data)
        self.world.appended(partition, self.id)
        partition.wait(self.id, epoch, end, done)


def _nobody(_answer: bytes | ErrorCode) -> None:
    """Who asked is gone."""
