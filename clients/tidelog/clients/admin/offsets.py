"""Offsets by timestamp: each partition's leader is asked, again where it has moved."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.clients.admin.leaders import from_leaders, name_of
from tidelog.clients.asking import Answered, Ask, Call, Outcome, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.failures import reason_to_repeat
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Epoch, Offset, Partition, TopicPartition
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k02_list_offsets import API as LIST_OFFSETS
from tidelog.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

END = -1
"""Instead of a timestamp: the high watermark, or the last stable offset."""
START = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """-1 and -1 where no record is as late as asked."""

    offset: Offset
    timestamp: int
    epoch: Epoch


def list_offsets(
    view: ClusterView, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> Plan[dict[TopicPartition, FoundOffset]]:
    """The first offset at or after each timestamp; raises Rejected where a leader says no."""
    found: dict[TopicPartition, FoundOffset] = {}
    yield from from_leaders(
        view,
        wanted,
        ask=lambda partitions: _ask(view, partitions, wanted, isolation),
        take=lambda outcome: _take(outcome, found),
        done=found,
    )
    return found


def peek_offsets(
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Plan[dict[TopicPartition, FoundOffset]]:
    """As `list_offsets`, asked once: a partition that cannot answer now is missing."""
    found: dict[TopicPartition, FoundOffset] = {}
    led, _ = view.by_leader(wanted)
    if led:
        outcomes = yield [
            Call(leader, _ask(view, partitions, wanted, isolation))
            for leader, partitions in led.items()
        ]
        for outcome in outcomes:
            if isinstance(outcome, Answered):
                rows = _rows(outcome.message)
                found.update((one, offset) for one, code, offset in rows if code is ErrorCode.NONE)
    return found


def _ask(
    view: ClusterView,
    partitions: Iterable[TopicPartition],
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
) -> Ask:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for one in partitions:
        row = ListOffsetsPartition(
            partition_index=one[1], current_leader_epoch=view.epoch(one), timestamp=wanted[one]
        )
        topics.setdefault(one[0], []).append(row)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
    )
    return Ask(LIST_OFFSETS, request)


def _take(outcome: Outcome, found: dict[TopicPartition, FoundOffset]) -> str:
    """Note what was found; why to ask again, or nothing."""
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    because = ""
    for partition, code, offset in _rows(outcome.message):
        if code is ErrorCode.NONE:
            found[partition] = offset
        elif code in RETRIABLE:
            because = f"{name_of(partition)}: {code.name}"
        else:
            raise Rejected(code, name_of(partition))
    return because


def _rows(
    message: ListOffsetsResponse,
) -> Iterator[tuple[TopicPartition, ErrorCode, FoundOffset]]:
    for topic in message.topics:
        for one in topic.partitions:
            offset = FoundOffset(Offset(one.offset), one.timestamp, Epoch(one.leader_epoch))
            partition = (topic.name, Partition(one.partition_index))
            yield partition, known_code(one.error_code), offset
