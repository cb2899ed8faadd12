"""Delete records from the front: each partition's leader is asked, again where it has moved.

To ask twice does no harm: a log's start only ever goes forward.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.clients.admin.leaders import from_leaders, name_of
from tidelog.clients.asking import Answered, Ask, Outcome, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.failures import reason_to_repeat
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import ms
from tidelog.wire.errors import RETRIABLE, ErrorCode
from tidelog.wire.messages.k21_delete_records import API as DELETE_RECORDS
from tidelog.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1
"""Instead of an offset: everything that consumers may see."""


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """What became of one partition; `start` is its first offset now where the code is NONE."""

    code: ErrorCode
    start: Offset


def delete_records(
    view: ClusterView, before: Mapping[TopicPartition, int], *, timeout_ms: int = 30_000
) -> Plan[dict[TopicPartition, RecordsDeleted]]:
    """Delete what lies before each offset; each partition on its own."""
    done: dict[TopicPartition, RecordsDeleted] = {}
    yield from from_leaders(
        view,
        before,
        ask=lambda partitions: _ask(partitions, before, timeout_ms),
        take=lambda outcome: _take(outcome, done),
        done=done,
    )
    return done


def _ask(
    partitions: Iterable[TopicPartition], before: Mapping[TopicPartition, int], timeout_ms: int
) -> Ask:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for one in partitions:
        row = DeleteRecordsPartition(partition_index=one[1], offset=before[one])
        topics.setdefault(one[0], []).append(row)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=timeout_ms,
    )
    return Ask(DELETE_RECORDS, request, timeout_ns=ms(2 * timeout_ms))


def _take(outcome: Outcome, done: dict[TopicPartition, RecordsDeleted]) -> str:
    """Note what was done; why to ask again, or nothing."""
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    because = ""
    for partition, code, start in _rows(outcome.message):
        if code in RETRIABLE:
            because = f"{name_of(partition)}: {code.name}"
        else:
            done[partition] = RecordsDeleted(code, start)
    return because


def _rows(
    message: DeleteRecordsResponse,
) -> Iterator[tuple[TopicPartition, ErrorCode, Offset]]:
    for topic in message.topics:
        for one in topic.partitions:
            partition = (topic.name, Partition(one.partition_index))
            yield partition, known_code(one.error_code), Offset(one.low_watermark)
