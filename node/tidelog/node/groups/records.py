"""What `__consumer_offsets` holds of classic groups, byte for byte as Kafka writes it.

A key says by its first two bytes what it is; a record without a value takes back what its key had.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import BYTES, INT32, INT64, STRING, UUID
from tidelog.wire.schema import array, message, row
from tidelog.wire.stored import read_stored, written

OFFSET_KEY: Final = 1
OFFSET_KEY_OF_OLD: Final = 0
"""Kafka reads it as the other; what it says is the same."""
GROUP_KEY: Final = 2
_OFFSET_VERSION: Final = 4
_OFFSET_FLEXIBLE_FROM: Final = 4
_GROUP_VERSION: Final = 3
_GROUP_FLEXIBLE_FROM: Final = 4
NEVER: Final = -1


@message
class _OffsetKey:
    group: str = row(STRING)
    topic: str = row(STRING)
    partition: int = row(INT32)


@message
class _OffsetValue:
    offset: int = row(INT64)
    leader_epoch: int = row(INT32, "3+", default=-1)
    metadata: str = row(STRING)
    commit_timestamp: int = row(INT64)
    expire_timestamp: int = row(INT64, "1", default=-1)
    topic_id: Uuid = row(UUID, "4+", tag=0)


@message
class _GroupKey:
    group: str = row(STRING)


@message
class _GroupMember:
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "3+", nullable="3+", default=None)
    client_id: str = row(STRING)
    client_host: str = row(STRING)
    rebalance_timeout: int = row(INT32, "1+")
    session_timeout: int = row(INT32)
    subscription: bytes = row(BYTES)
    assignment: bytes = row(BYTES)


@message
class _GroupValue:
    protocol_type: str = row(STRING)
    generation: int = row(INT32)
    protocol: str | None = row(STRING, nullable="0+")
    leader: str | None = row(STRING, nullable="0+")
    current_state_timestamp: int = row(INT64, "2+", default=-1)
    members: list[_GroupMember] = row(array(_GroupMember))


class CommittedOffset(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER
    """Of commits whose clients said how long to keep them, which only old ones did."""
    topic_id: Uuid = ZERO_UUID


class OffsetRecord(Struct, frozen=True):
    """One commit; without a value the offset is forgotten."""

    group: str
    topic: str
    partition: int
    value: CommittedOffset | None


class PendingOffset(Struct, frozen=True):
    """One commit of an open transaction: it counts when the transaction's marker says so."""

    producer_id: int
    producer_epoch: int
    offset: OffsetRecord


class GroupMember(NamedTuple):
    """One member of a classic group, as its log keeps it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupState(NamedTuple):
    """One generation of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    """When it came into the state that it is in: of an empty group, since when it is empty."""
    members: tuple[GroupMember, ...]


class GroupRecord(Struct, frozen=True):
    """One classic group; without a value it is gone."""

    group: str
    value: GroupState | None


def offset_pair(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a commit."""
    key = _OffsetKey(group=record.group, topic=record.topic, partition=record.partition)
    value = record.value
    if value is None:
        return written(OFFSET_KEY, key), None
    row = _OffsetValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_ms,
        expire_timestamp=value.expire_ms,
        topic_id=value.topic_id,
    )
    # Only version 1 can say when a commit expires, and only it loses the leader epoch.
    version = _OFFSET_VERSION if value.expire_ms == NEVER else 1
    return written(OFFSET_KEY, key), written(version, row, flexible=version >= 4)


def group_pair(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a group."""
    key = written(GROUP_KEY, _GroupKey(group=record.group))
    state = record.value
    if state is None:
        return key, None
    row = _GroupValue(
        protocol_type=state.protocol_type,
        generation=state.generation,
        protocol=state.protocol,
        leader=state.leader,
        current_state_timestamp=state.since_ms,
        members=[
            _GroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in state.members
        ],
    )
    return key, written(_GROUP_VERSION, row)


def _version(value: memoryview, newest: int) -> int:
    version = int.from_bytes(value[:2], "big")
    if len(value) < 2 or version > newest:
        raise WireError(f"a value of version {version}; {newest} is the newest known here")
    return version


def read_offset(kind: int, key: memoryview, value: memoryview | None) -> OffsetRecord:
    """A commit out of its key and value."""
    where = read_stored(key, _OffsetKey, kind, flexible=False)
    if value is None:
        return OffsetRecord(where.group, where.topic, where.partition, None)
    version = _version(value, _OFFSET_VERSION)
    row = read_stored(value, _OffsetValue, version, flexible=version >= _OFFSET_FLEXIBLE_FROM)
    committed = CommittedOffset(
        row.offset,
        row.leader_epoch,
        row.metadata,
        row.commit_timestamp,
        row.expire_timestamp,
        row.topic_id,
    )
    return OffsetRecord(where.group, where.topic, where.partition, committed)


def read_group(kind: int, key: memoryview, value: memoryview | None) -> GroupRecord:
    """A group out of its key and value."""
    where = read_stored(key, _GroupKey, kind, flexible=False)
    if value is None:
        return GroupRecord(where.group, None)
    version = _version(value, _GROUP_FLEXIBLE_FROM)
    row = read_stored(value, _GroupValue, version, flexible=version >= _GROUP_FLEXIBLE_FROM)
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            # Version 0 has one time for both.
            member.rebalance_timeout if version else member.session_timeout,
            member.session_timeout,
            bytes(member.subscription),
            bytes(member.assignment),
        )
        for member in row.members
    )
    state = GroupState(
        row.protocol_type,
        row.generation,
        row.protocol,
        row.leader,
        row.current_state_timestamp,
        members,
    )
    return GroupRecord(where.group, state)


READERS: Final[Mapping[int, Callable[[int, memoryview, memoryview | None], Any]]] = {
    OFFSET_KEY_OF_OLD: read_offset,
    OFFSET_KEY: read_offset,
    GROUP_KEY: read_group,
}
