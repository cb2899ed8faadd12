"""A member of a group of the consumer protocol, and its way from what it has to what it shall have.

A member gets nothing that another still holds, and moves to the group's epoch only once it gave up
what it shall no longer have. So a group never stops as a whole: who has nothing to change goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.assignors import Assignment
from tidelog.node.groups.history import Named
from tidelog.node.groups.records_consumer import MemberState

LEFT = -1
"""The epoch of who leaves for good, and of a partition that nobody holds."""
LEFT_FOR_NOW = -2
"""The epoch of a static member that will come back and keeps its partitions meanwhile."""

Holdings = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which the member got it; no topic is empty."""


class ClassicSide(Struct, frozen=True):
    """What a member of the classic protocol says, that one of the consumer protocol does not."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names, and its subscription under each, in the order of its liking; never empty."""

    @property
    def protocol(self) -> str:
        """The one that it is told is chosen: nobody else assigns by it."""
        return self.protocols[0][0]

    @property
    def subscription(self) -> bytes:
        return self.protocols[0][1]


class Member(Struct, frozen=True):
    """Everything the log says of a member.

    Invariant: `assigned` and `revoking` share no partition; `revoking` is empty but in
    UNREVOKED_PARTITIONS.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The names it subscribed to, sorted."""
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    """It may still speak with this one: the answer that raised it can be lost."""
    state: MemberState = MemberState.STABLE
    assigned: Holdings = {}
    revoking: Holdings = {}
    classic: ClassicSide | None = None
    """Of a member that speaks the classic protocol in a group that has others, too."""

    @property
    def named(self) -> Named:
        return Named(self.member_id, self.client_id, self.client_host)

    def since(self, topic: Uuid, partition: int) -> int | None:
        """The epoch at which it got the partition; None where it does not hold it."""
        assigned = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if assigned is None else assigned

    def held(self) -> set[tuple[Uuid, int]]:
        """What nobody else may get: what it has, and what it has not given up."""
        return pairs_of(self.assigned) | pairs_of(self.revoking)


class OwnedReport(NamedTuple):
    """Which partitions a member says that it owns."""

    partitions: Sequence[tuple[Uuid, int]] | None = None
    """None where it says nothing new."""
    may_lag: bool = False
    """Whether the client may still apply an assignment that this list does not contain yet."""


def pairs_of(holdings: Mapping[Uuid, Mapping[int, int] | frozenset[int]]) -> set[tuple[Uuid, int]]:
    return {(topic, one) for topic, partitions in holdings.items() for one in partitions}


def reconciled(
    member: Member,
    *,
    target_epoch: int,
    target: Assignment,
    owned: OwnedReport,
    is_free: Callable[[Uuid, int], bool],
    subscribed: frozenset[Uuid] | None = None,
) -> Member:
    """The member after one more step to its target.

    `is_free` tells whether nobody else holds a partition; `subscribed` are the topics that the
    member wants, if it says so just now.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and not _confirms(owned, member, target):
        return member if subscribed is None else _without_unsubscribed(member, subscribed)
    kept, given_up = _parted(member.assigned, target)
    if given_up and _must_be_asked(owned, given_up):
        return replace(
            member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=given_up
        )
    missing = sorted(pairs_of(target) - pairs_of(kept))
    free = [one for one in missing if is_free(*one)]
    for topic, partition in free:
        kept.setdefault(topic, {})[partition] = target_epoch
    waits = len(free) < len(missing)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        epoch=target_epoch,
        assigned=kept,
        revoking={},
    )


def _without_unsubscribed(member: Member, subscribed: frozenset[Uuid]) -> Member:
    """It has yet to give up what it was asked for, and is asked for more: it must not be told to
    read a topic that it does not want any more."""
    unwanted = {
        topic: partitions
        for topic, partitions in member.assigned.items()
        if topic not in subscribed
    }
    if not unwanted:
        return member
    revoking = {topic: dict(partitions) for topic, partitions in member.revoking.items()}
    for topic, partitions in unwanted.items():
        revoking.setdefault(topic, {}).update(partitions)
    kept = {topic: one for topic, one in member.assigned.items() if topic in subscribed}
    return replace(member, assigned=kept, revoking=revoking)


def _parted(
    assigned: Holdings, target: Assignment
) -> tuple[dict[Uuid, dict[int, int]], dict[Uuid, dict[int, int]]]:
    """What of it the target leaves, and what not."""
    kept: dict[Uuid, dict[int, int]] = {}
    given_up: dict[Uuid, dict[int, int]] = {}
    for topic, partitions in assigned.items():
        wanted = target.get(topic, frozenset())
        for partition, since in partitions.items():
            place = kept if partition in wanted else given_up
            place.setdefault(topic, {})[partition] = since
    return kept, given_up


def _confirms(owned: OwnedReport, member: Member, target: Assignment) -> bool:
    """Whether the member says that it gave up what it was asked for.

    A list without something that it keeps is from before it applied what it was told, so it may
    still read the rest. What the target leaves out does not count: it may be of a deleted topic,
    which no client lists.
    """
    if owned.partitions is None or _still_owns(owned.partitions, member.revoking):
        return False
    keeps = pairs_of(member.assigned) & pairs_of(target)
    return not owned.may_lag or keeps <= set(owned.partitions)


def _must_be_asked(owned: OwnedReport, given_up: Holdings) -> bool:
    """Whether the member has to hear that it loses these before anybody else may get them.

    A client applies an assignment some time after the answer that brought it: it asks for the
    topics' names first, or its application is busy. Until then its heartbeats do not list those
    partitions, and it will still read them. Kafka takes them away at once, so two members read
    them for a while.
    """
    return owned.may_lag or _still_owns(owned.partitions, given_up)


def _still_owns(owned: Sequence[tuple[Uuid, int]] | None, given_up: Holdings) -> bool:
    """Whether it may still use what it shall give up: it does until it says that it does not."""
    if owned is None:
        return True
    return any(partition in given_up.get(topic, {}) for topic, partition in owned)


def is_part_of(owned: Sequence[tuple[Uuid, int]] | None, holdings: Holdings) -> bool:
    """Whether it says what it owns, and all of that is in the holdings."""
    if owned is None:
        return False
    return all(partition in holdings.get(topic, {}) for topic, partition in owned)
