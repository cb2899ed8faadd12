"""What is asked of a group coordinator, and what it says; no version of the protocol is in it."""

from collections.abc import Iterable
from enum import Enum
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
    knows_epochs: bool = True
    """Whether its version was made for members of the consumer protocol, too."""


class CommitInTransaction(Struct, frozen=True):
    """The same, once the producer's transaction is committed. Answered with None."""

    group: str
    who: Who
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]


class FetchOffsets(Struct, frozen=True):
    """Ask how far a group has read; None asks for all it ever committed. Answered with
    OffsetsFound."""

    group: str
    member_id: str | None
    member_epoch: int
    wanted: tuple[tuple[str, int], ...] | None
    require_stable: bool


OffsetRow = tuple[str, int, CommittedOffset | ErrorCode | None]


class OffsetsFound(Struct, frozen=True):
    """In the order asked; None where nothing is committed, a code where it cannot be said yet."""

    rows: Iterable[OffsetRow]
    """Of many offsets they are made one by one, of what was committed when they were asked for."""


class DeleteOffsets(Struct, frozen=True):
    """Forget some commits. Answered with a tuple of codes, in the order asked."""

    group: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(Struct, frozen=True):
    """Forget a group and all it committed. Answered with None; with MORE if it had so many offsets
    that some are left, and the same is to be asked again."""

    group: str


class More(Enum):
    """What a decision says that forgets a bounded number."""

    LEFT = 1


MORE: Final = More.LEFT


class ListGroups(Struct, frozen=True):
    """Answered with a tuple of ListedGroup."""


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str
    kind: str


class ForgetDeletedTopics(Struct, frozen=True):
    """Forget the commits of topics that the image no longer has, or has under another id. Answered
    with whether more are left: one decision forgets a bounded number of them."""


# -- of the classic protocol


class JoinGroup(Struct, frozen=True):
    """Become a member, or be one in the next generation. Answered with Joined or JoinRefused, once
    the generation is complete."""

    group: str
    who: Who
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool
    """A member without an id is given one first, and comes again with it (KIP-394)."""
    may_skip_assignment: bool
    """A static leader that comes back understands that it need not assign anew."""
    new_member_id: str
    """Its id, if it has none yet and is let in, or shall come again."""
    reason: str = ""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(Struct, frozen=True):
    """A member of a generation; its leader is told of all the others."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class JoinRefused(Struct, frozen=True):
    """Not a member, and which id it was refused under."""

    code: ErrorCode
    member_id: str


class SyncGroup(Struct, frozen=True):
    """Ask for an assignment; the leader brings all of them. Answered with Synced."""

    group: str
    who: Who
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(Struct, frozen=True):
    protocol_type: str
    protocol: str
    assignment: bytes


class Heartbeat(Struct, frozen=True):
    """A member lives. Answered with None."""

    group: str
    who: Who


class MemberDisconnected(Struct, frozen=True):
    """The connection that a member was last heard on has ended. Answered with None."""

    group: str
    member_id: str


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None
    reason: str = ""


class LeaveGroup(Struct, frozen=True):
    """Members go. Answered with a tuple of codes, in their order."""

    group: str
    members: tuple[LeavingMember, ...]


class DescribeGroup(Struct, frozen=True):
    """Answered with GroupDescribed."""

    group: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class GroupDescribed(Struct, frozen=True):
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


READ_ONLY: Final[frozenset[type]] = frozenset(
    {FetchOffsets, ListGroups, DescribeGroup, DescribeConsumerGroup, Heartbeat, MemberDisconnected}
)
"""These are answered also while too few replicas are in sync to decide anything."""
