"""What to fetch from whom: one request at a time a leader, for all its partitions without data.

Sessionless: every request names its partitions, and no state is left with the broker. A partition
is asked for again only once its last answer was read, so memory is bounded by what one round of
answers may hold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.clients.admin.leaders import name_of
from tidelog.clients.asking import Ask, Call, Lost, is_transient
from tidelog.clients.cluster_view import STALE, ClusterView, known_code
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.failures import failure_of
from tidelog.clients.retry import BACKOFF
from tidelog.clients.settings import ConsumerSettings
from tidelog.kernel.ids import (
    NO_EPOCH,
    ZERO_UUID,
    Epoch,
    Offset,
    Partition,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected, WireError
from tidelog.wire.messages.k01_fetch import API as FETCH
from tidelog.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.old_messages import only_batches

FETCH_VERSION_OF_NAMES = 12
"""The last version that carries topic names: all that a cluster without topic ids understands."""
FETCH_VERSION_MAX = 17
"""Later ones tell only followers more."""


@dataclass(frozen=True, slots=True)
class FetchCall:
    """One request, and what it asks for."""

    leader: int
    call: Call
    partitions: tuple[TopicPartition, ...]
    names: Mapping[Uuid, str]


@dataclass(slots=True)
class _Reading:
    """One partition. Busy while its answer is on the way, or is being read."""

    position: Offset
    epoch: Epoch = NO_EPOCH
    """Of the batch before the position, where it was read: a log that has another one there, or
    ends before it, was cut (KIP-320)."""
    busy: bool = False
    failures: int = 0
    retry_at: Instant = Instant(0)
    high_watermark: Offset = Offset(-1)


class Fetcher:
    """Invariant: a leader has at most one request, and a partition is in at most one."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._partitions: dict[TopicPartition, _Reading] = {}
        self._asked: set[int] = set()
        self.stale: set[str] = set()
        """Topics whose leaders must be asked for again; whoever does so clears it."""
        self.out_of_range: set[TopicPartition] = set()
        """Positions that the log does not have (any more); `seek` gives another."""
        self.diverged: dict[TopicPartition, Offset] = {}
        """Where logs that were cut part from what was read of them; `seek` goes back to there."""

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read these partitions, and no others, from these positions on."""
        self._partitions = {one: _Reading(position) for one, position in positions.items()}
        self.out_of_range.clear()
        self.diverged.clear()

    def drop(self, partition: TopicPartition) -> None:
        """Do not read it any more."""
        self._partitions.pop(partition, None)
        self.out_of_range.discard(partition)
        self.diverged.pop(partition, None)

    def seek(self, partition: TopicPartition, position: Offset) -> None:
        reading = self._partitions[partition]
        reading.position, reading.epoch = position, NO_EPOCH
        self.out_of_range.discard(partition)
        self.diverged.pop(partition, None)

    def position(self, partition: TopicPartition) -> Offset:
        """The next offset to be fetched."""
        return self._partitions[partition].position

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        return self._partitions.keys()

    def lag(self, partition: TopicPartition) -> int | None:
        """Records up to the high watermark of the last answer; None before the first."""
        reading = self._partitions[partition]
        if reading.high_watermark < 0:
            return None
        return max(0, reading.high_watermark - reading.position)

    def poll(self, now: Instant, view: ClusterView) -> list[FetchCall]:
        """Requests to be sent now."""
        ready = [one for one, reading in self._partitions.items() if self._ready(now, one, reading)]
        led, orphans = view.by_leader(ready)
        for one in orphans:
            self._wait(now, one)
        return [
            self._fetch(view, leader, partitions)
            for leader, partitions in led.items()
            if leader not in self._asked
        ]

    def answered(self, now: Instant, call: FetchCall, message: FetchResponse) -> list[Fetched]:
        """What the leader had; each must be given back to `consumed` once it is read."""
        self._asked.discard(call.leader)
        code = known_code(message.error_code)
        if code is not ErrorCode.NONE:
            self._refused(now, call.partitions, code)
            return []
        fetched = []
        answers = _by_partition(call, message)
        for partition in call.partitions:
            reading = self._partitions.get(partition)
            if reading is None:
                continue
            reading.busy = False
            answer = answers.get(partition)
            found = None if answer is None else self._take(now, partition, reading, answer)
            if found is not None:
                fetched.append(found)
        # Whoever was answered last goes to the end: all partitions get their turn.
        for one in fetched:
            self._partitions[one.partition] = self._partitions.pop(one.partition)
        return fetched

    def lost(self, now: Instant, call: FetchCall, why: Lost) -> None:
        """No answer; positions have not moved, so nothing is missed."""
        self._asked.discard(call.leader)
        if not is_transient(why):
            raise failure_of(why)
        for partition in call.partitions:
            self._wait(now, partition)

    def consumed(self, fetched: Fetched) -> None:
        """Go on from where its reader stopped."""
        reading = self._partitions.get(fetched.partition)
        if reading is not None:
            reading.busy = False
            reading.position = fetched.position
            if fetched.epoch != NO_EPOCH:
                reading.epoch = fetched.epoch

    def deadline(self) -> Instant | None:
        """When a partition that failed is tried again."""
        waits = (one.retry_at for one in self._partitions.values() if one.retry_at)
        return min(waits, default=None)

    def _ready(self, now: Instant, partition: TopicPartition, reading: _Reading) -> bool:
        waits = partition in self.out_of_range or partition in self.diverged
        if reading.busy or waits or now < reading.retry_at:
            return False
        reading.retry_at = Instant(0)
        return True

    def _fetch(self, view: ClusterView, leader: int, partitions: list[TopicPartition]) -> FetchCall:
        settings = self._settings
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            reading = self._partitions[partition]
            reading.busy = True
            name, number = partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=view.topic_id(name))
            row = FetchPartition(
                partition=number,
                current_leader_epoch=view.epoch(partition),
                fetch_offset=reading.position,
                last_fetched_epoch=reading.epoch,
                partition_max_bytes=settings.partition_bytes_max,
            )
            topic.partitions.append(row)
        request = FetchRequest(
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=settings.isolation,
            topics=list(topics.values()),
        )
        names = {topic.topic_id: name for name, topic in topics.items()}
        version_max = FETCH_VERSION_OF_NAMES if ZERO_UUID in names else FETCH_VERSION_MAX
        ask = Ask(FETCH, request, settings.request_timeout_ns, version_max)
        self._asked.add(leader)
        return FetchCall(leader, Call(leader, ask), tuple(partitions), names)

    def _take(
        self, now: Instant, partition: TopicPartition, reading: _Reading, answer: PartitionData
    ) -> Fetched | None:
        code = known_code(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.out_of_range.add(partition)
            return None
        if code is not ErrorCode.NONE:
            self._refused(now, (partition,), code)
            return None
        reading.failures = 0
        reading.high_watermark = Offset(answer.high_watermark)
        parts = answer.diverging_epoch
        if parts is not None and parts.end_offset >= 0:
            self.diverged[partition] = Offset(min(parts.end_offset, reading.position))
            return None
        records = answer.records
        if not records:
            return None
        assert isinstance(records, memoryview), type(records)
        reading.busy = True
        return Fetched(
            partition,
            reading.position,
            _batches(partition, records),
            answer.aborted_transactions or (),
            reading.high_watermark,
        )

    def _refused(self, now: Instant, partitions: Iterable[TopicPartition], code: ErrorCode) -> None:
        names = list(partitions)
        if code not in RETRIABLE and code not in STALE:
            raise Rejected(code, f"{names[0][0]}-{names[0][1]}")
        for partition in names:
            self._wait(now, partition)

    def _wait(self, now: Instant, partition: TopicPartition) -> None:
        reading = self._partitions.get(partition)
        if reading is not None:
            reading.busy = False
            reading.failures += 1
            reading.retry_at = Instant(now + BACKOFF.wait(reading.failures))
            self.stale.add(partition[0])


def _batches(partition: TopicPartition, records: memoryview) -> memoryview:
    """What an old cluster stores in formats 0 and 1 becomes record batches here."""
    try:
        return only_batches(records)
    except WireError as failure:
        raise WireError(f"{name_of(partition)}: {failure}") from None


def _by_partition(call: FetchCall, message: FetchResponse) -> dict[TopicPartition, PartitionData]:
    """By topic name, also where the version carries ids only."""
    return {
        (topic.topic or call.names.get(topic.topic_id, ""), Partition(one.partition_index)): one
        for topic in message.responses
        for one in topic.partitions
    }
