"""Who of a group shall have which partitions: the assignors that a coordinator itself offers.

Both are Kafka's by name and by outcome. `uniform` spreads evenly and moves no more than evenness
asks for; `range` gives each member neighbouring partitions, and the same ones of topics that are
partitioned alike.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import Uuid

Partitions = frozenset[int]
Assignment = dict[Uuid, Partitions]
"""Never with an empty set: a topic of which a member has nothing is not in it."""

TopicPartition = tuple[Uuid, int]


class Subscriber(Struct, frozen=True):
    """What an assignor knows of a member."""

    instance_id: str | None
    topics: frozenset[Uuid]
    held: Mapping[Uuid, Partitions] = {}
    """What the target before this one gave it."""


Assignor = Callable[[Mapping[str, Subscriber], Mapping[Uuid, int]], dict[str, Assignment]]
"""Members and how many partitions each topic has -> what each member shall have."""


def assign_range(
    members: Mapping[str, Subscriber], topics: Mapping[Uuid, int]
) -> dict[str, Assignment]:
    """Of every topic the subscribers get runs of partitions, in the members' order."""
    target: dict[str, Assignment] = {member: {} for member in members}
    ordered = sorted(members, key=lambda member: _range_place(member, members[member]))
    for topic in sorted(topics):
        takers = [member for member in ordered if topic in members[member].topics]
        if not takers:
            continue
        each, more = divmod(topics[topic], len(takers))
        first = 0
        for place, member in enumerate(takers):
            last = first + each + (place < more)
            if last > first:
                target[member][topic] = frozenset(range(first, last))
            first = last
    return target


def _range_place(member: str, subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by instance: their shares stay when they come back by a new id."""
    if subscriber.instance_id is None:
        return True, member
    return False, subscriber.instance_id


def assign_uniform(
    members: Mapping[str, Subscriber], topics: Mapping[Uuid, int]
) -> dict[str, Assignment]:
    """Evenly over the members that may have a partition, most of them where they are."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    alike = all(subscriber.topics == first for subscriber in members.values())
    table = _Table(members, topics)
    if alike:
        _spread_alike(table)
    else:
        _spread_unlike(table)
    return table.assignments()


class _Table:
    """Who holds what, while an assignor works.

    Invariant: each partition is held once, by a subscriber of its topic, or is `free`.
    """

    def __init__(self, members: Mapping[str, Subscriber], topics: Mapping[Uuid, int]) -> None:
        self.members = sorted(members)
        self.takers: dict[Uuid, list[str]] = {
            topic: [member for member in self.members if topic in members[member].topics]
            for topic in sorted(topics)
        }
        owned: set[TopicPartition] = set()
        self.held: dict[str, dict[TopicPartition, None]] = {}
        for member in self.members:
            kept = [one for one in _still_fit(members[member], topics) if one not in owned]
            owned.update(kept)
            self.held[member] = dict.fromkeys(kept)
        self.free = [one for one in self._wanted(topics) if one not in owned]

    def _wanted(self, topics: Mapping[Uuid, int]) -> list[TopicPartition]:
        return [
            (topic, partition)
            for topic, takers in self.takers.items()
            if takers
            for partition in range(topics[topic])
        ]

    def give_up_above(self, member: str, keep: int) -> None:
        held = self.held[member]
        while len(held) > keep:
            self.free.append(held.popitem()[0])

    def assignments(self) -> dict[str, Assignment]:
        return {member: _as_assignment(held) for member, held in self.held.items()}


def _still_fit(subscriber: Subscriber, topics: Mapping[Uuid, int]) -> list[TopicPartition]:
    return [
        (topic, partition)
        for topic in sorted(subscriber.held)
        if topic in subscriber.topics
        for partition in sorted(subscriber.held[topic])
        if partition < topics.get(topic, 0)
    ]


def _as_assignment(held: Mapping[TopicPartition, None]) -> Assignment:
    topics: dict[Uuid, set[int]] = {}
    for topic, partition in held:
        topics.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in topics.items()}


def _spread_alike(table: _Table) -> None:
    """All subscribe to the same: who has more than its share gives up, who has less takes.

    As many as divide unevenly may have one more; those who have it already come first, so that
    each partition that moves had to.
    """
    whole = len(table.free) + sum(map(len, table.held.values()))
    each, more = divmod(whole, len(table.members))
    shares: dict[str, int] = {}
    for member in sorted(table.members, key=lambda one: -len(table.held[one])):
        shares[member] = each + (more > 0)
        more -= more > 0
    for member, share in shares.items():
        table.give_up_above(member, share)
    left = iter(table.free)
    for member, share in shares.items():
        while len(table.held[member]) < share:
            table.held[member][next(left)] = None
    assert next(left, None) is None


def _spread_unlike(table: _Table) -> None:
    """Members subscribe to different topics: fill the least loaded, then level topic by topic.

    At the end no partition can go to a subscriber with at least two fewer than its holder.
    """
    few_takers_first = sorted(table.free, key=lambda one: len(table.takers[one[0]]))
    for one in few_takers_first:
        least = min(table.takers[one[0]], key=lambda member: len(table.held[member]))
        table.held[least][one] = None
    table.free = []
    # Each move makes the sum of squared loads smaller, so this ends.
    while any(_level(table, topic) for topic in table.takers):
        pass


def _level(table: _Table, topic: Uuid) -> bool:
    """Move partitions of one topic while one subscriber has two more than another."""
    takers = table.takers[topic]
    movable: dict[str, list[TopicPartition]] = {
        member: [one for one in table.held[member] if one[0] == topic] for member in takers
    }
    moved = False
    while True:
        givers = [member for member in takers if movable[member]]
        if not givers:
            return moved
        most = max(givers, key=lambda member: len(table.held[member]))
        least = min(takers, key=lambda member: len(table.held[member]))
        if len(table.held[most]) - len(table.held[least]) < 2:
            return moved
        one = movable[most].pop()
        del table.held[most][one]
        table.held[least][one] = None
        movable[least].append(one)
        moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"
