"""The offsets that a group has committed: read them, and set them where nobody is in the group."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.clients.admin.groups import at_coordinator
from tidelog.clients.asking import Ask, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import Epoch, Offset, Partition, TopicPartition, by_topic
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k08_offset_commit import API as OFFSET_COMMIT
from tidelog.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.k09_offset_fetch import API as OFFSET_FETCH
from tidelog.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_FETCH_VERSION_OF_STABLE = 7
_BY_NAME_FETCH_MAX = 9
_BY_NAME_COMMIT_MAX = 9
"""Later versions name topics by their ids, and cannot name one that is gone."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: Offset
    epoch: Epoch
    metadata: str


def committed_offsets(view: ClusterView, group: str) -> Plan[dict[TopicPartition, CommittedOffset]]:
    """All that a group has committed."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
    )
    ask = Ask(OFFSET_FETCH, request, version_max=_BY_NAME_FETCH_MAX)
    _, message = yield from at_coordinator(view, group, ask, _fetch_code)
    code = known_code(_fetch_code(message))
    if code is not ErrorCode.NONE:
        raise Rejected(code, group)
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic, row in _fetched(message):
        if row.error_code != ErrorCode.NONE:
            raise Rejected(known_code(row.error_code), f"{topic}-{row.partition_index}")
        if row.committed_offset >= 0:
            found[topic, Partition(row.partition_index)] = _committed(row)
    return found


def unstable_offsets(
    view: ClusterView, group: str, partitions: Iterable[TopicPartition]
) -> Plan[set[TopicPartition]]:
    """Those for which a transaction that is still open has committed an offset."""
    wanted = list(partitions)
    if not wanted:
        return set()
    rows = yield from _stable_rows(view, group, wanted)
    return {
        (topic, Partition(row.partition_index))
        for topic, row in rows
        if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    }


def stable_offset(
    view: ClusterView, group: str, partition: TopicPartition, *, tries: int | None = None
) -> Plan[CommittedOffset | None]:
    """What a group has committed, once no open transaction can change it any more; None where it
    has committed nothing. Rejected after this number of tries, if one is given."""
    failures = 0
    while True:
        ((_, row),) = yield from _stable_rows(view, group, [partition])
        code = known_code(row.error_code)
        if code is ErrorCode.NONE:
            return _committed(row) if row.committed_offset >= 0 else None
        failures += 1
        if code not in RETRIABLE or failures == tries:
            raise Rejected(code, group)
        yield Pause(BACKOFF.wait(failures), f"group {group}: {code.name}")


def _stable_rows(
    view: ClusterView, group: str, partitions: Iterable[TopicPartition]
) -> Plan[list[tuple[str, Any]]]:
    """A row for each, with UNSTABLE_OFFSET_COMMIT where a transaction is open."""
    wanted = by_topic(partitions)
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=name, partition_indexes=ids)
            for name, ids in wanted.items()
        ],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=ids)
                    for name, ids in wanted.items()
                ],
            )
        ],
        require_stable=True,
    )
    ask = Ask(
        OFFSET_FETCH,
        request,
        version_max=_BY_NAME_FETCH_MAX,
        version_min=_FETCH_VERSION_OF_STABLE,
    )
    _, message = yield from at_coordinator(view, group, ask, _fetch_code)
    code = known_code(_fetch_code(message))
    if code is not ErrorCode.NONE:
        raise Rejected(code, group)
    return list(_fetched(message))


def _committed(row: Any) -> CommittedOffset:  # noqa: ANN401 -- a row of either form
    return CommittedOffset(
        Offset(row.committed_offset), Epoch(row.committed_leader_epoch), row.metadata or ""
    )


def _fetch_code(message: OffsetFetchResponse) -> int:
    """Old versions answer for the one group at the top, newer ones in a list."""
    return message.groups[0].error_code if message.groups else message.error_code


def _fetched(message: OffsetFetchResponse) -> Iterator[tuple[str, Any]]:
    topics: Iterable[Any] = message.groups[0].topics if message.groups else message.topics
    for topic in topics:
        for row in topic.partitions:
            yield topic.name, row


def commit_offsets(
    view: ClusterView, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> Plan[dict[TopicPartition, ErrorCode]]:
    """As nobody's member: a group that has members refuses. What became of each partition."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    ask = Ask(OFFSET_COMMIT, request, version_max=_BY_NAME_COMMIT_MAX)
    _, message = yield from at_coordinator(view, group, ask, _commit_code)
    return {
        (topic.name, Partition(row.partition_index)): known_code(row.error_code)
        for topic in message.topics
        for row in topic.partitions
    }


def _commit_code(message: Any) -> int:  # noqa: ANN401 -- a response
    """One that asks to try again, if any partition has one."""
    codes = [row.error_code for topic in message.topics for row in topic.partitions]
    return next((code for code in codes if known_code(code) in RETRIABLE), ErrorCode.NONE)
