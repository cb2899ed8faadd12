"""DeleteRecords (key 21), versions 0-2: a log begins later; -1 is its high watermark.

The answer waits until the new starts are in the checkpoint on disk: a killed broker must not show
again what it said is deleted. Not done: waiting for followers (there are none).
"""

from typing import Final

from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k21_delete_records import (
    API,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK: Final = -1
_NO_OFFSET: Final = -1


def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    answer = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete(call, name, index, offset) for index, offset in asked.items()],
            )
            for name, asked in _asked(request).items()
        ]
    )
    deleted = [row for topic in answer.topics for row in topic.partitions if not row.error_code]
    if not deleted:
        return answer

    def kept(is_kept: bool) -> None:  # noqa: FBT001 -- the storage calls it
        for row in () if is_kept else deleted:
            row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            row.low_watermark = _NO_OFFSET
        if not call.abandoned:
            call.answer(answer)

    call.broker.storage.keep_starts(kept)
    return None


def _asked(request: DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """Offset by topic and partition; of a partition that stands twice the last one counts."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        rows = asked.setdefault(topic.name, {})
        for row in topic.partitions:
            rows[row.partition_index] = row.offset
    return asked


def _delete(call: Call, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        start = _advance(call, topic, index, offset)
    except Rejected as refused:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_OFFSET, error_code=refused.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)


def _advance(call: Call, topic: str, index: int, offset: int) -> int:
    """Where the log begins now."""
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
        with partitions.storage_errors(broker, replica):
            log.advance_start(start)
        # A fetch that waits for more may want what is gone now.
        broker.waiting.begins_later(call.now, replica.key)
    return log.start


ROUTE = Route(API, range(3), delete_records, "answered when no kill can bring the records back")
