"""A group from one protocol to the other while its members are at work (KIP-848).

The first member of the consumer protocol makes a classic group one of that protocol, in which its
members go on as they are: each speaks its own. When the last one of the consumer protocol is gone
the group is a classic one again. Generations and epochs go on counting: none is given twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from tidelog.kernel.ids import Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.texts import quoted
from tidelog.node.groups.assignors import Assignment
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.classic_generations import CONSUMER_TYPE
from tidelog.node.groups.classic_members import Member as ClassicMember
from tidelog.node.groups.consumer_log import (
    LoggedGroup,
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from tidelog.node.groups.consumer_member import ClassicSide, Member
from tidelog.node.groups.embedded import (
    Owned,
    read_assignment,
    read_subscription,
    takes_user_data,
    write_assignment,
)
from tidelog.node.groups.group import Around, Draft
from tidelog.node.groups.records_consumer import ConsumerRecord
from tidelog.node.groups.topics import Topics
from tidelog.wire.errors import ErrorCode, Rejected

UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})
"""Values of `group.consumer.migration.policy`."""


# -- classic to consumer ------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, around: Around) -> None:
    """Rejected where a member of the consumer protocol may not join it."""
    complaint = _complaint(group, around)
    if complaint is not None:
        raise Rejected(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {quoted(group.name)} is of the classic protocol, and {complaint}",
        )


def _complaint(group: ClassicGroup, around: Around) -> str | None:
    settings = around.settings
    for is_so, complaint in (
        (
            settings["group.consumer.migration.policy"] not in UPGRADES,
            "group.consumer.migration.policy does not let it change while it has members",
        ),
        (group.protocol_type != CONSUMER_TYPE, "its members are no consumers"),
        (
            len(group.members) > settings["group.consumer.max.size"],
            "has more members than group.consumer.max.size allows",
        ),
    ):
        if is_so:
            return complaint
    return next((said for one in group.members if (said := _unreadable(group, one))), None)


def _unreadable(group: ClassicGroup, member: ClassicMember) -> str | None:
    if read_subscription(member.subscription(_protocol_of(group))) is None:
        return "the subscription of one of its members cannot be read"
    if read_assignment(member.assignment) is None:
        return "the assignment of one of its members cannot be read"
    if takes_user_data(member.assignment):
        return "its assignor gives members data of its own, which would be lost"
    return None


def _protocol_of(group: ClassicGroup) -> str:
    """Before the first generation is complete none is chosen: then the one that would be."""
    return group.protocol or group.members.choose_protocol()


def as_consumer(group: ClassicGroup, topics: Topics, now_ms: int) -> list[ConsumerRecord]:
    """The records of a group of the consumer protocol that has the same members, in the epoch of
    its generation, and with what each of them has."""
    name, epoch = group.name, group.generation
    held = _held(group, topics)
    members = [_member(group, one, held[one.id]) for one in group.members]
    return [
        *(member_record(name, one) for one in members),
        epoch_record(name, epoch, 0),
        *(target_record(name, one.member_id, _target(one)) for one in members),
        target_epoch_record(name, epoch, now_ms),
        *(current_record(name, one) for one in members),
    ]


def _held(group: ClassicGroup, topics: Topics) -> dict[str, dict[Uuid, set[int]]]:
    """What each member may be reading: its share of the generation, and what it said that it kept
    when it joined: a cooperative one gives that up only when it has heard of its share."""
    held: dict[str, dict[Uuid, set[int]]] = {one.id: {} for one in group.members}
    taken: set[tuple[Uuid, int]] = set()
    for said in (_assigned, _kept):
        for one in group.members:
            for place in _places(said(group, one), topics):
                if place not in taken:
                    taken.add(place)
                    held[one.id].setdefault(place[0], set()).add(place[1])
    return held


def _assigned(_group: ClassicGroup, member: ClassicMember) -> Owned:
    return read_assignment(member.assignment) or {}


def _kept(group: ClassicGroup, member: ClassicMember) -> Owned:
    said = read_subscription(member.subscription(_protocol_of(group)))
    return {} if said is None else said.owned


def _places(owned: Owned, topics: Topics) -> Iterator[tuple[Uuid, int]]:
    for name, partitions in owned.items():
        facts = topics.of_name(name)
        if facts is not None:
            yield from ((facts.id, one) for one in sorted(partitions))


def _member(
    group: ClassicGroup, member: ClassicMember, held: Mapping[Uuid, Collection[int]]
) -> Member:
    said = read_subscription(member.subscription(_protocol_of(group)))
    assert said is not None, "this was checked"
    epoch = group.generation
    return Member(
        member.id,
        instance_id=member.instance_id,
        rack_id=said.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(said.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic: dict.fromkeys(sorted(parts), epoch) for topic, parts in held.items()},
        classic=ClassicSide(member.session_timeout_ms, _own_first(group, member)),
    )


def _own_first(group: ClassicGroup, member: ClassicMember) -> tuple[tuple[str, bytes], ...]:
    """The protocol that it was told is chosen comes first: it goes on with that one."""
    chosen = _protocol_of(group)
    return tuple(sorted(member.protocols, key=lambda one: one[0] != chosen))


def _target(member: Member) -> Assignment:
    return {topic: frozenset(parts) for topic, parts in member.assigned.items()}


# -- consumer to classic ------------------------------------------------------------------------


def as_classic(
    log: LoggedGroup, gone: Collection[str], around: Around, now: Instant, draft: Draft
) -> ClassicGroup:
    """A classic group of those who are not gone, in the generation of the group's epoch. They are
    to join anew, also when the coordinator moves before they have; until then they keep what they
    have."""
    for record in group_tombstones(log):
        draft.record(record)
    made = ClassicGroup(log.group, around)
    left = [one for name, one in log.members.items() if name not in gone]
    made.adopt(now, log.epoch, [_classic_member(one, around.topics) for one in left], draft)
    draft.becomes[log.group] = made
    return made


def _classic_member(member: Member, topics: Topics) -> ClassicMember:
    side = member.classic
    assert side is not None, member.member_id
    return ClassicMember(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=side.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=side.protocols,
        assignment=share_of(member.held(), side, topics),
        has_synced=True,
    )


def share_of(held: Iterable[tuple[Uuid, int]], side: ClassicSide, topics: Topics) -> bytes:
    """As a leader would have made it, in the version of the member's subscription. A topic that is
    gone has no name, and no part in it."""
    said = read_subscription(side.subscription)
    version = 0 if said is None else said.version  # nobody is let in whose cannot be read
    named: dict[str, list[int]] = {}
    for topic, partition in sorted(held):
        name = topics.name_of(topic)
        if name is not None:
            named.setdefault(name, []).append(partition)
    return write_assignment(version, named)
