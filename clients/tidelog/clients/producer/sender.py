"""Batches to the leaders of their partitions, again where it helps, always in order.

Within a partition batches are numbered once, when they first go out. After a failure the partition
sends one batch at a time, lowest number first, until nothing is left to repeat: so the order of
the log is the order of appending, and the broker drops what it has already (idempotence).
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.clients.asking import Ask, Call, Lost, is_transient
from tidelog.clients.cluster_view import STALE, ClusterView, known_code
from tidelog.clients.producer.accumulator import (
    NO_SEQUENCE,
    Accumulator,
    Batch,
    sequence_after,
)
from tidelog.clients.retry import BACKOFF
from tidelog.clients.settings import Acks, ProducerSettings
from tidelog.kernel.ids import NO_OFFSET, ZERO_UUID, Offset, TopicPartition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import RETRIABLE, ErrorCode
from tidelog.wire.messages.k00_produce import API as PRODUCE
from tidelog.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.records import PLAIN, TRANSACTIONAL_BIT, Origin

PRODUCE_VERSION_OF_NAMES = 12
"""The last version that carries topic names: all that a cluster without topic ids understands."""
PRODUCE_VERSION_OF_ADDING = 12
"""The first version in which a produce itself adds its partition to the transaction."""
REQUESTS_PER_LEADER_MAX = 5

NOT_WAITING = Instant(0)


class Identity(NamedTuple):
    """Who the brokers think we are: what repeats are recognised by."""

    producer_id: int
    epoch: int


class Delivered(NamedTuple):
    """A batch is written; the offset is NO_OFFSET where the broker did not say."""

    partition: TopicPartition
    base_offset: Offset
    records: int


class Failed(NamedTuple):
    """A batch is given up. `code` is None where no broker answered in time."""

    partition: TopicPartition
    records: int
    code: ErrorCode | None
    detail: str


Result = Delivered | Failed


FATAL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The broker does not take us for who we are: nothing more can go to this partition."""


@dataclass(frozen=True, slots=True)
class Send:
    """One produce request, and what it carries."""

    leader: int
    call: Call
    batches: tuple[Batch, ...]
    topic_ids: Mapping[str, Uuid]


@dataclass(slots=True)
class _Lane:
    """One partition. Invariant: what is queued was appended after what is in flight, unless
    `repeating`; then at most one batch is in flight, and `queue` is in order of appending."""

    partition: TopicPartition
    queue: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    next_sequence: int = 0
    repeating: bool = False
    retry_at: Instant = NOT_WAITING
    gap: Batch | None = None
    """Refused for good: the numbers after it must close up before anything else goes out."""
    failed: Failed | None = None
    added: bool = False
    """To the open transaction; or something was sent that may have added it."""

    @property
    def wake(self) -> Instant:
        """When the first queued batch is sent again, or given up."""
        assert self.queue
        give_up = self.queue[0].give_up
        return give_up if self.retry_at == NOT_WAITING else min(self.retry_at, give_up)

    def put_back(self, batch: Batch) -> None:
        """In front of all that was appended later."""
        at = next((n for n, one in enumerate(self.queue) if one.order >= batch.order), None)
        self.queue.insert(len(self.queue) if at is None else at, batch)
        self.repeating = True

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence, once."""
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            self.next_sequence = sequence_after(self.next_sequence, batch.count)

    def close_gap(self) -> None:
        """Number again what follows a refused batch: none of it can have been written."""
        if self.gap is None or self.in_flight:
            return
        sequence = self.gap.sequence
        for batch in self.queue:
            if batch.order >= self.gap.order and batch.sequence != NO_SEQUENCE:
                batch.sequence = sequence
                sequence = sequence_after(sequence, batch.count)
        self.next_sequence = sequence
        self.gap = None


class Sender:
    """Queues and in-flight batches of all partitions; frees the accumulator's buffer."""

    def __init__(self, settings: ProducerSettings, accumulator: Accumulator) -> None:
        self._settings = settings
        self._accumulator = accumulator
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: Counter[int] = Counter()
        self._results: list[Result] = []
        self.identity: Identity | None = None
        self.stale: set[str] = set()
        """Topics whose leaders must be asked for again; whoever does so clears it."""
        self.failure: Failed | None = None
        """The first batch that was given up since the last transaction ended."""
        self._dropping = False
        self._is_sure = True
        self.adds = False
        """The brokers add partitions to the open transaction: nobody else needs to."""

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not any(lane.queue or lane.in_flight for lane in self._lanes.values())

    def accept(self) -> None:
        """Take over what the accumulator has closed."""
        for batch in self._accumulator.take_closed():
            lane = self._lanes.setdefault(batch.partition, _Lane(batch.partition))
            lane.queue.append(batch)

    def unadded(self) -> list[TopicPartition]:
        """Partitions with something to send that the transaction does not know yet."""
        if self._settings.transactional_id is None or self.adds:
            return []
        return [one for one, lane in self._lanes.items() if lane.queue and not lane.added]

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            self._lanes[one].added = True

    @property
    def begun(self) -> bool:
        """Whether a transaction is open."""
        return any(lane.added for lane in self._lanes.values())

    def ended(self) -> None:
        """The transaction is over; the next one adds its partitions again."""
        assert self.idle, "a transaction ends after its last batch"
        self.failure = None
        self._dropping = False
        for lane in self._lanes.values():
            lane.added = False

    def drop(self) -> None:
        """Give up all that is queued, and let go what is in flight: the transaction is aborted."""
        self._dropping = True
        for lane in self._lanes.values():
            while lane.queue:
                self._fail(lane.queue.popleft(), None, _DROPPED)

    @property
    def is_sure(self) -> bool:
        """Whether each number that was given to a batch is known to be written."""
        return self._is_sure

    def renew(self, identity: Identity) -> None:
        """A new epoch: numbers begin anew, so what became of the old ones matters no more."""
        assert self.idle, "what is on its way has the old epoch"
        self.identity = identity
        self._is_sure = True
        self._lanes.clear()

    def poll(self, now: Instant, view: ClusterView) -> list[Send]:
        """Requests to be sent now, at most one a leader; call again until there are none."""
        if self._settings.idempotent and self.identity is None:
            return []
        chosen: dict[int, list[Batch]] = {}
        sizes: Counter[int] = Counter()
        for lane in self._lanes.values():
            self._give_up(now, lane)
            if not self._ready(now, lane):
                continue
            leader = view.leader(lane.partition)
            if leader is None:
                self._wait(now, lane, failures=1)
                continue
            size = lane.queue[0].size_bytes
            full = sizes[leader] and sizes[leader] + size > self._settings.request_bytes
            if not full and self._requests[leader] < REQUESTS_PER_LEADER_MAX:
                sizes[leader] += size
                chosen.setdefault(leader, []).append(self._take_out(lane))
        return [self._send(view, leader, batches) for leader, batches in chosen.items()]

    def answered(self, now: Instant, send: Send, message: ProduceResponse | None) -> None:
        """A leader answered, or was not asked to (acks=0, where `message` is None)."""
        self._requests[send.leader] -= 1
        answers = {} if message is None else _by_partition(message)
        for batch in send.batches:
            lane = self._lanes[batch.partition]
            lane.in_flight.remove(batch)
            topic, number = batch.partition
            answer = answers.get((topic, number)) or answers.get((send.topic_ids[topic], number))
            if message is None:
                self._deliver(lane, batch, NO_OFFSET)
            elif answer is None:
                self._repeat(now, lane, batch)
            else:
                self._take(now, lane, batch, answer)

    def lost(self, now: Instant, send: Send, why: Lost) -> None:
        """No answer: written or not, nobody knows."""
        self._requests[send.leader] -= 1
        for batch in send.batches:
            lane = self._lanes[batch.partition]
            lane.in_flight.remove(batch)
            if is_transient(why):
                self._repeat(now, lane, batch)
            else:
                self._abandon(lane, batch, None, why.detail)

    def take_results(self) -> list[Result]:
        """What became of batches, each told once."""
        results, self._results = self._results, []
        return results

    def deadline(self) -> Instant | None:
        """When something may be sent again, or must be given up."""
        return min((lane.wake for lane in self._lanes.values() if lane.queue), default=None)

    def _ready(self, now: Instant, lane: _Lane) -> bool:
        if not lane.queue or now < lane.retry_at:
            return False
        lane.retry_at = NOT_WAITING
        if self._settings.transactional_id is not None and not (lane.added or self.adds):
            return False
        alone = lane.repeating or not self._settings.idempotent
        return len(lane.in_flight) < (1 if alone else self._settings.in_flight_per_partition)

    def _give_up(self, now: Instant, lane: _Lane) -> None:
        """Batches that waited too long, and all of a partition that cannot go on."""
        while lane.queue and (lane.failed or now >= lane.queue[0].give_up):
            batch = lane.queue.popleft()
            failed = lane.failed
            if failed is not None:
                self._fail(batch, failed.code, failed.detail)
            elif batch.sequence == NO_SEQUENCE:
                self._fail(batch, None, _LATE)
            else:
                self._abandon(lane, batch, None, _LATE)

    def _take_out(self, lane: _Lane) -> Batch:
        lane.close_gap()
        batch = lane.queue.popleft()
        if self._settings.idempotent:
            lane.number(batch)
        lane.in_flight.append(batch)
        lane.added = lane.added or self.adds
        return batch

    def _send(self, view: ClusterView, leader: int, batches: list[Batch]) -> Send:
        self._requests[leader] += 1
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, number = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=view.topic_id(name))
            data = PartitionProduceData(index=number, records=memoryview(self._encode(batch)))
            topic.partition_data.append(data)
        settings = self._settings
        request = ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ns // 1_000_000,
            topic_data=list(topics.values()),
        )
        ask = Ask(
            PRODUCE,
            request,
            timeout_ns=settings.request_timeout_ns,
            version_max=self._version_max(topics.values()),
            version_min=PRODUCE_VERSION_OF_ADDING if self.adds else 0,
            answered=settings.acks is not Acks.NONE,
        )
        ids = {name: topic.topic_id for name, topic in topics.items()}
        return Send(leader, Call(leader, ask), tuple(batches), ids)

    def _version_max(self, topics: Iterable[TopicProduceData]) -> int:
        if self._settings.transactional_id is not None and not self.adds:
            return PRODUCE_VERSION_OF_ADDING - 1
        if any(topic.topic_id == ZERO_UUID for topic in topics):
            return PRODUCE_VERSION_OF_NAMES
        return PRODUCE.versions[-1]

    def _encode(self, batch: Batch) -> bytearray:
        origin = PLAIN
        if self.identity is not None:
            flags = 0 if self._settings.transactional_id is None else TRANSACTIONAL_BIT
            origin = Origin(self.identity.producer_id, self.identity.epoch, batch.sequence, flags)
        return batch.encoded(self._settings.codec, origin)

    def _take(
        self, now: Instant, lane: _Lane, batch: Batch, answer: PartitionProduceResponse
    ) -> None:
        code = known_code(answer.error_code)
        if code is ErrorCode.NONE:
            self._deliver(lane, batch, Offset(answer.base_offset))
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._deliver(lane, batch, NO_OFFSET)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            first, rest = batch.halves()
            lane.put_back(rest)
            lane.put_back(first)
        elif code in RETRIABLE or self._comes_early(lane, batch, code):
            if code in STALE:
                self.stale.add(lane.partition[0])
            self._repeat(now, lane, batch)
        elif code in FATAL:
            self._abandon(lane, batch, code, answer.error_message or "")
        else:
            self._refuse(lane, batch, code, answer.error_message or "")

    def _comes_early(self, lane: _Lane, batch: Batch, code: ErrorCode) -> bool:
        """Out of order only because one before it is to be repeated, or was refused."""
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return False
        earlier = any(one.order <= batch.order for one in (*lane.in_flight, *lane.queue))
        return earlier or (lane.gap is not None and lane.gap.order <= batch.order)

    def _deliver(self, lane: _Lane, batch: Batch, base_offset: Offset) -> None:
        self._accumulator.done(batch.size_bytes)
        self._results.append(Delivered(batch.partition, base_offset, batch.count))
        if not lane.in_flight and not (lane.queue and lane.queue[0].sequence != NO_SEQUENCE):
            lane.repeating = False

    def _repeat(self, now: Instant, lane: _Lane, batch: Batch) -> None:
        if self._dropping:
            self._fail(batch, None, _DROPPED)
            return
        batch.failures += 1
        lane.put_back(batch)
        self._wait(now, lane, batch.failures)

    def _wait(self, now: Instant, lane: _Lane, failures: int) -> None:
        lane.retry_at = Instant(now + BACKOFF.wait(failures))
        self.stale.add(lane.partition[0])

    def _refuse(self, lane: _Lane, batch: Batch, code: ErrorCode, detail: str) -> None:
        """This batch never, those after it perhaps."""
        if batch.sequence != NO_SEQUENCE:
            lane.repeating = True
            if lane.gap is None or batch.order < lane.gap.order:
                lane.gap = batch
        self._fail(batch, code, detail)

    def _abandon(self, lane: _Lane, batch: Batch, code: ErrorCode | None, detail: str) -> None:
        """This batch may or may not be written: nothing after it can be numbered."""
        lane.failed = Failed(lane.partition, batch.count, code, detail)
        self._fail(batch, code, detail)

    def _fail(self, batch: Batch, code: ErrorCode | None, detail: str) -> None:
        self._accumulator.done(batch.size_bytes)
        failed = Failed(batch.partition, batch.count, code, detail)
        self._results.append(failed)
        self.failure = self.failure or failed
        self._is_sure = self._is_sure and batch.sequence == NO_SEQUENCE


_LATE = "no broker took it in time"
_DROPPED = "its transaction was aborted"


def _by_partition(
    message: ProduceResponse,
) -> dict[tuple[str | Uuid, int], PartitionProduceResponse]:
    """By topic name, or by id where the version knows only that."""
    return {
        (topic.name or topic.topic_id, one.index): one
        for topic in message.responses
        for one in topic.partition_responses
    }
