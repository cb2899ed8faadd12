"""Groups with members of both protocols at once, through histories in which they come and go.

G1: of a partition one member's commits are taken at a time, and those who are in the group read
nothing together. G2: generations and epochs rise, whichever protocol the group speaks. G3, G4: what
was committed is there, and does not go back. G5: once all is quiet, each partition has one reader.
"""

import random
from collections.abc import Callable

import pytest

from harness.faults.planting import Plant, Planting
from harness.machines.consumer_groups import TopicsInMemory
from harness.machines.mixed_groups import (
    GROUP,
    SESSION_MS,
    Classic,
    Coordinator,
    Member,
    Modern,
    turns,
)
from harness.suite.budgets import Histories
from tidelog.node.groups import consumer_member, conversion
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.consumer_log import LoggedGroup
from tidelog.node.groups.consumer_mixed import MixedGroup

STEPS = 80
MEMBERS_MAX = 6
SUBSCRIPTIONS = (("t",), ("t",), ("t", "u"), ("u",))


class History:
    """One group, its members of either protocol, and what is true of them after every step."""

    def __init__(self, seed: int, policy: str = "bidirectional") -> None:
        self.random = random.Random(seed)
        self.topics = TopicsInMemory(t=4, u=3)
        self.coordinator = Coordinator(self.topics, **{"group.consumer.migration.policy": policy})
        self.cooperative = self.random.random() < 0.5
        """What members of the classic protocol are: they agree on one assignor."""
        self.members: list[Member] = []
        self.number = 0
        self.names = 0
        self.committed: dict[tuple[str, int], int] = {}
        self.kinds: set[str] = set()
        """What the group was."""
        self.steps: tuple[Callable[[], None], ...] = (
            *(self.turn,) * 14,
            *(self.join,) * 2,
            self.lose_an_answer,
            self.leave,
            self.die,
            self.roll,
            self.grow,
            self.pass_time,
            self.fail_over,
            *(self.commit,) * 3,
        )

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.steps)()
            self.check()
        self.quiet_down()

    def check(self) -> None:
        number = self.coordinator.number()
        assert number >= self.number or self.coordinator.group is None, ("G2", number, self.number)
        self.number = number
        group = self.coordinator.group
        if group is not None and not group.is_empty:
            self.kinds.add(group.kind)
        readers: dict[object, str] = {}
        for member in self.members:
            for one in member.may_commit():
                assert one not in readers, ("G1", one, member.name, readers[one])
                readers[one] = member.name

    def quiet_down(self) -> None:
        for _ in range(6):
            self.coordinator.wait(SESSION_MS / 1000 / 2)
            turns(self.members, 3)
            self.check()
        turns(self.members, 30)
        wanted = {
            (name, number)
            for member in self.members
            if not member.is_fenced
            for name in member.topics
            for number in range(self.topics.sizes[name])
        }
        used = [one for member in self.members for one in member.uses]
        assert sorted(used) == sorted(wanted), "G5"
        self.commit()
        answer = self.coordinator.answer(
            ask.FetchOffsets(GROUP, None, -1, None, require_stable=False)
        )
        found = {(row[0], row[1]): row[2].offset for row in answer.rows}
        assert found == self.committed, "G3"

    # -- what happens

    def turn(self) -> None:
        if self.members:
            self.random.choice(self.members).turn()

    def lose_an_answer(self) -> None:
        if self.members:
            self.random.choice(self.members).turn(answer_lost=True)

    def join(self) -> None:
        if len(self.members) < MEMBERS_MAX:
            wants = self.random.choice(SUBSCRIPTIONS)
            static = self.random.random() < 0.3
            self.names += 1
            self._add(wants, f"i{self.names}" if static else None)

    def _add(self, wants: tuple[str, ...], instance: str | None) -> None:
        self.names += 1
        name = f"m{self.names}"
        if self.random.random() < 0.5:
            self.members.append(Modern(self.coordinator, name, *wants, instance=instance))
        else:
            cooperative = self.cooperative
            self.members.append(
                Classic(self.coordinator, name, *wants, instance=instance, cooperative=cooperative)
            )

    def leave(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members))).leave()

    def die(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members)))

    def roll(self) -> None:
        """One is stopped, and started with whichever protocol."""
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            member.leave()
            self._add(member.topics, member.instance)

    def grow(self) -> None:
        name = self.random.choice("tu")
        self.topics.set(**{name: min(self.topics.sizes[name] + 1, 8)})
        # Somebody of the classic protocol sees it too: the leader asks for another assignment.
        leads = [one for one in self.members if isinstance(one, Classic) and one.is_joined]
        for member in leads:
            member.is_joined = False

    def pass_time(self) -> None:
        """Long enough that who said nothing since the last time is taken out."""
        self.coordinator.wait(self.random.choice([1, 8, 15]))

    def fail_over(self) -> None:
        self.coordinator.restart(compacted=self.random.random() < 0.5)

    def commit(self) -> None:
        for member in self.members:
            for one in sorted(member.uses):
                offset = self.committed.get(one, 0) + 1
                if member.commit({one: offset}):
                    self.committed[one] = offset


def test_members_of_both_protocols_read_each_partition_once(
    histories: Histories,
) -> None:
    histories.run(lambda seed: History(seed).run())


@pytest.mark.parametrize("policy", ["upgrade", "downgrade", "disabled"])
def test_a_policy_that_forbids_a_change_keeps_what_there_is(policy: str) -> None:
    for seed in range(40):
        history = History(seed, policy)
        for _ in range(STEPS):
            history.random.choice(history.steps)()
            history.check()


def test_histories_are_of_both_kinds() -> None:
    """Or they would show little."""
    kinds = []
    for seed in range(20):
        history = History(seed)
        history.run()
        kinds.append(history.kinds)
    assert sum(len(one) == 2 for one in kinds) >= 10


HOLES: dict[str, Plant] = {
    "what another has is given": lambda patch: patch.setattr(
        LoggedGroup, "is_free", lambda *_, **__: True
    ),
    "what is asked back counts as given up": lambda patch: patch.setattr(
        consumer_member, "_still_owns", lambda *_: False
    ),
    "members of a classic group come without their shares": lambda patch: patch.setattr(
        conversion, "_assigned", lambda *_: {}
    ),
    "members of a classic group come without what they keep": lambda patch: patch.setattr(
        conversion, "_kept", lambda *_: {}
    ),
    "nobody is asked to join again": lambda patch: patch.setattr(
        MixedGroup, "_may_go_on", lambda *_: False
    ),
    "a classic group goes on as if it were shared out": lambda patch: patch.setattr(
        ClassicGroup, "begin_anew", lambda *_: None
    ),
    "a group that changes counts anew": lambda patch: patch.setattr(
        ClassicGroup, "adopt", _from_one
    ),
}
_adopt = ClassicGroup.adopt


def _from_one(self: ClassicGroup, now: object, _: int, members: object, draft: object) -> None:
    _adopt(self, now, 1, members, draft)  # type: ignore[arg-type]  # as they came


@pytest.mark.parametrize("hole", list(HOLES))
def test_a_planted_hole_is_seen(hole: str, planting: Planting) -> None:
    planting.is_found(HOLES[hole], lambda seed: History(seed).run(), match=r"G1|G2|G3|G5")
