"""What is asked of a group coordinator, and what it says; no version of the protocol is in it."""

from typing import Final, NamedTuple

from msgspec import Struct

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.consumer_requests import DescribeConsumerGroup
from tidelog.node.groups.records import CommittedOffset
from tidelog.wire.errors import ErrorCode


class Who(NamedTuple):
    """The member that a request says it comes from."""

    member_id: str
    instance_id: str | None
    generation: int
    """Of a member of a consumer group: its epoch. Negative: it claims to be no member."""


class OffsetToCommit(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class CommitOffsets(Struct, frozen=True):
    """Remember how far a group has read. Answered with None: all or nothing."""

    group: str
    who: Who
    offsets: tuple[OffsetToCommit, ...]
    kept_ms: int = -1
    """How long to keep them, where an old client says so."""


class FetchOffsets(Struct, frozen=True):
    """Ask how far a group has read; None asks for all it ever committed. Answered with
    OffsetsFound."""

    group: str
    member_id: str | None
    member_epoch: int
    wanted: tuple[tuple[str, int], ...] | None
    require_stable: bool


class OffsetsFound(Struct, frozen=True):
    """In the order asked; None where nothing is committed, a code where it cannot be said yet."""

    rows: tuple[tuple[str, int, CommittedOffset | ErrorCode | None], ...]


class DeleteOffsets(Struct, frozen=True):
    """Forget some commits. Answered with a tuple of codes, in the order asked."""

    group: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(Struct, frozen=True):
    """Forget a group and all it committed. Answered with None."""

    group: str


class ListGroups(Struct, frozen=True):
    """Answered with a tuple of ListedGroup."""


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str
    kind: str


class TopicDeleted(Struct, frozen=True):
    """The topic is gone, and its offsets with it: nobody shall read them under its name again.
    Nobody waits for an answer, which is None."""

    topic: str


READ_ONLY: Final[frozenset[type]] = frozenset({FetchOffsets, ListGroups, DescribeConsumerGroup})
"""These are answered also while too few replicas are in sync to decide anything."""
