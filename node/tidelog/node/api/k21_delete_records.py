"""DeleteRecords (key 21), versions 0-2: a log begins later; -1 is its high watermark.

The answer waits until the new starts are in the checkpoint on disk, for a killed broker must not
show again what it said is deleted; then until every live replica has moved its own start.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.kernel.ids import NO_OFFSET, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import ANYWAY, Parting, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.waiting import BROKERS, Waiter
from tidelog.wire.errors import ErrorCode, Rejected, no_request_fault
from tidelog.wire.messages.k21_delete_records import (
    API,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK: Final = -1
_DELETION_COUNTS_AS: Final = 10
"""To let a log begin later takes as long as to refuse so many."""


class _Deletion(NamedTuple):
    """A log that begins later, and its row of the answer."""

    replica: Replica
    leader: Leader
    """Of the epoch it was asked in."""
    row: DeleteRecordsPartitionResult
    start: Offset

    def low_watermark(self, image: MetadataImage) -> Offset:
        return self.leader.low_watermark(Offset(self.replica.log.start), image.is_alive)

    def is_led(self) -> bool:
        return self.replica.leader is self.leader

    def is_decided(self, image: MetadataImage) -> bool:
        return not self.is_led() or self.low_watermark(image) >= self.start

    def settle(self, image: MetadataImage) -> None:
        """Write down what came of it by now."""
        if not self.is_led():
            _fail(self.row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self.row.low_watermark = self.low_watermark(image)
        if self.row.low_watermark < self.start:
            self.row.error_code = ErrorCode.REQUEST_TIMED_OUT


def delete_records(call: Call, request: DeleteRecordsRequest) -> object | None:
    return in_parts(call, _deleted(call, request))


def _deleted(call: Call, request: DeleteRecordsRequest) -> Parts:
    """All of it is done also if the client leaves after the first part, as one part would be."""
    turn, deletions = Turn(), list[_Deletion]()
    answer = DeleteRecordsResponse()
    asked = yield from _asked(request, turn)
    for name, offsets in asked.items():
        topic = DeleteRecordsTopicResult(name=name)
        answer.topics.append(topic)
        for index, offset in offsets.items():
            if turn.is_over():
                yield ANYWAY
            before = len(deletions)
            topic.partitions.append(_delete(call, name, index, offset, deletions))
            if len(deletions) > before:
                turn.take(_DELETION_COUNTS_AS)
    if not deletions:
        return answer
    _keep(call, answer, deletions, Instant(call.now + ms(max(0, request.timeout_ms))))
    return None


def _keep(
    call: Call, answer: DeleteRecordsResponse, deletions: list[_Deletion], deadline: Instant
) -> None:
    def kept(is_kept: bool) -> None:  # noqa: FBT001 -- the storage calls it
        if call.abandoned:
            return
        if is_kept:
            _Wait(call, answer, deletions, deadline).look(call.now)
            return
        for one in deletions:
            _fail(one.row, ErrorCode.KAFKA_STORAGE_ERROR)
        call.answer(answer)

    call.broker.storage.keep_starts(call.later(kept))


class _Wait:
    """Answers once no live replica shows any more what was deleted, or at the deadline."""

    def __init__(
        self,
        call: Call,
        answer: DeleteRecordsResponse,
        deletions: Sequence[_Deletion],
        deadline: Instant,
    ) -> None:
        self._call = call
        self._answer = answer
        self._deletions = deletions
        self._deadline = deadline
        self._image = call.broker.image
        self._decided = 0
        """So many from the first on were decided when they were looked at last."""

    def look(self, now: Instant) -> None:
        if self._call.abandoned:
            return
        self._decided = 0
        if now < self._deadline and not self._ready():
            # A replica whose broker dies is waited for no longer: that is news of a broker.
            keys = (BROKERS, *{one.replica.key for one in self._deletions})
            waiter = Waiter(keys, self._deadline, self.look, missing=0, ready=self._ready)
            self._call.park(waiter)
            return
        for one in self._deletions:
            one.settle(self._image)
        self._call.answer(self._answer)

    def _ready(self) -> bool:
        """Asked at each news of a partition: it goes on where it found the last undecided one."""
        deletions, image = self._deletions, self._image
        while self._decided < len(deletions):
            if not deletions[self._decided].is_decided(image):
                return False
            self._decided += 1
        return True


def _fail(row: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    row.error_code = code
    row.low_watermark = NO_OFFSET


def _asked(request: DeleteRecordsRequest, turn: Turn) -> Parting[dict[str, dict[int, int]]]:
    """Offset by topic and partition; of a partition that stands twice the last one counts."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        rows = asked.setdefault(topic.name, {})
        for row in topic.partitions:
            if turn.is_over():
                yield ANYWAY
            rows[row.partition_index] = row.offset
    return asked


def _delete(
    call: Call, topic: str, index: int, offset: int, deletions: list[_Deletion]
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(partition_index=index)
    try:
        replica, leader, start = _advance(call, topic, index, offset)
    except Rejected as refused:
        _fail(row, refused.code)
    else:
        row.low_watermark = start
        deletions.append(_Deletion(replica, leader, row, start))
    return row


def _advance(call: Call, topic: str, index: int, offset: int) -> tuple[Replica, Leader, Offset]:
    """Let the log begin there; or later, where it did so before."""
    broker = call.broker
    if not partitions.exists(broker, topic, index):
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION)
    replica, leader = partitions.led(broker, topic, index)
    log = replica.log
    if log.settings.compact and not log.settings.delete:
        raise Rejected(ErrorCode.POLICY_VIOLATION)
    start = leader.high_watermark if offset == _HIGH_WATERMARK else offset
    if not 0 <= start <= leader.high_watermark:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE)
    if start > log.start:
        with no_request_fault("a deletion of records"):
            with partitions.storage_errors(broker, replica):
                log.advance_start(start)
            # A fetch that waits for more may want what is gone now.
            broker.waiting.begins_later(call.now, replica.key)
            broker.replication.begins_later(call.now, replica)
    return replica, leader, Offset(log.start)


ROUTE = Route(
    API, range(3), delete_records, "answered when no replica and no kill can show the records again"
)
