"""Groups of the consumer protocol through histories: joins, leaves, deaths, growth, fail-overs.

G1: no partition is read by two members of the group at once. G2: epochs never go back. G5: once
all is quiet, each partition that somebody wants has one owner, and the shares are even. G6: nobody
waits for what was asked back from a static member that then left for now. G7: a member that says
what it subscribes to is told of no other topic.
"""

import random
from collections.abc import Callable

import pytest

from harness.faults.planting import Plant, Planting
from harness.machines.consumer_groups import Client, GroupOverLog, TopicsInMemory, settle, topic_id
from harness.suite.budgets import Histories
from tidelog.kernel.ids import Uuid
from tidelog.node.groups import consumer_member
from tidelog.node.groups.consumer_log import LoggedGroup
from tidelog.node.groups.consumer_member import Member, pairs_of
from tidelog.wire.errors import ErrorCode, Rejected

STEPS = 60
MEMBERS_MAX = 6
SUBSCRIPTIONS: tuple[tuple[str, ...] | str, ...] = (("t",), ("t", "u"), ("u", "v"), "[tu]", ".*")


class History:
    """One group, its clients, and what is true of them after every step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.topics = TopicsInMemory(t=4, u=3)
        self.group = GroupOverLog(self.topics)
        self.clients: list[Client] = []
        self.away: list[Client] = []
        """Static members that left for now."""
        self.epoch = 0
        self.names = 0
        self.steps: tuple[Callable[[], None], ...] = (
            *(self.beat,) * 8,
            *(self.join,) * 2,
            *(self.beat_slowly,) * 2,
            *(self.apply_late,) * 2,
            self.lose_an_answer,
            self.leave,
            self.die,
            self.come_back,
            self.leave_for_now,
            self.return_later,
            self.subscribe,
            self.grow,
            self.pass_time,
            self.fail_over,
        )

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.steps)()
            self.check()
        self.quiet_down()

    def check(self) -> None:
        log = self.group.group.log
        assert log.epoch >= self.epoch, "G2"
        self.epoch = log.epoch
        readers: dict[object, str] = {}
        for client in self.clients:
            if client.name not in log.members:
                continue  # it was taken out; what it commits is refused
            for one in client.uses:
                assert one not in readers, ("G1", one, client.name, readers[one])
                readers[one] = client.name

    def quiet_down(self) -> None:
        for _ in range(4):
            self.group.wait(20)
            for client in list(self.clients):
                self._say(client.beat)(client)
            self.check()
        settle(self.clients)
        log = self.group.group.log
        wanted = {
            (topic_id(name), number)
            for name in log.topics()
            for number in range(self.topics.sizes.get(name, 0))
        }
        used = [one for client in self.clients for one in client.uses]
        assert sorted(used) == sorted(wanted), "G5"
        assert log.state == ("Stable" if self.clients else "Empty")
        loads = [len(client.uses) for client in self.clients]
        if len({log.topics_of(member) for member in log.members.values()}) == 1:
            assert max(loads) - min(loads) <= 1

    # -- what happens

    def beat(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self._say(client.beat)(client)

    def beat_slowly(self) -> None:
        """A member that takes its time to give up, and may subscribe to something else."""
        if not self.clients:
            return
        client = self.random.choice(self.clients)
        self._say(lambda: client.beat(slow=True))(client)
        if client.regex is None and self.random.random() < 0.5:
            wants = self.random.choice([one for one in SUBSCRIPTIONS if not isinstance(one, str)])
            client.subscribe(*wants)
            self._say(lambda: client.beat(slow=True))(client)
            told = {topic for topic, _ in client.told}
            assert told <= set(map(topic_id, wants)), "G7"

    def apply_late(self) -> None:
        """A member says what it has, while it has yet to apply what it was told to have."""
        if not self.clients:
            return
        client = self.random.choice(self.clients)
        self._say(lambda: client.beat(late=True))(client)
        self.random.choice(self.steps)()
        if client in self.clients:
            full = self.random.random() < 0.5
            self._say(lambda: client.beat(full=full))(client)

    def lose_an_answer(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self._say(lambda: client.beat(answer_lost=True))(client)

    def join(self) -> None:
        if len(self.clients) >= MEMBERS_MAX:
            return
        self.names += 1
        wants = self.random.choice(SUBSCRIPTIONS)
        topics, regex = ((), wants) if isinstance(wants, str) else (wants, None)
        instance = f"i{self.names}" if self.random.random() < 0.3 else None
        self.clients.append(
            Client(self.group, f"m{self.names}", *topics, regex=regex, instance=instance)
        )

    def leave(self) -> None:
        if self.clients:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            self._say(client.leave)(client)

    def die(self) -> None:
        if self.clients:
            self.clients.pop(self.random.randrange(len(self.clients)))

    def come_back(self) -> None:
        """A static member leaves for now, and comes back as another."""
        client = self._left_for_now()
        if client is not None:
            self._comes_back(client)

    def leave_for_now(self) -> None:
        """And may come back later, or never."""
        static = [one for one in self.clients if one.instance is not None and one.epoch > 0]
        members = self.group.group.log.members
        asked = {one.name: members[one.name].revoking for one in static if one.name in members}
        client = self._left_for_now()
        if client is None:
            return
        self.away.append(client)
        for _ in range(4):
            for other in list(self.clients):
                self._say(other.beat)(other)
            self.check()
        self._check_all_use(pairs_of(asked.get(client.name, {})))

    def _check_all_use(self, free: set[tuple[Uuid, int]]) -> None:
        """Whoever shall have one of these has it."""
        target = self.group.group.log.target
        for other in self.clients:
            assert free & pairs_of(target.get(other.name, {})) <= other.uses, "G6"

    def return_later(self) -> None:
        if self.away:
            self._comes_back(self.away.pop(self.random.randrange(len(self.away))))

    def _left_for_now(self) -> Client | None:
        static = [one for one in self.clients if one.instance is not None and one.epoch > 0]
        if not static:
            return None
        client = self.random.choice(static)
        if not self._said(lambda: client.leave(for_now=True)):
            return None
        self.clients.remove(client)
        return client

    def _comes_back(self, client: Client) -> None:
        self.names += 1
        again = Client(self.group, f"m{self.names}", *client.topics, regex=client.regex)
        again.instance = client.instance
        self.clients.append(again)

    def subscribe(self) -> None:
        named = [one for one in self.clients if one.regex is None]
        if named:
            wants = self.random.choice([one for one in SUBSCRIPTIONS if not isinstance(one, str)])
            self.random.choice(named).subscribe(*wants)

    def grow(self) -> None:
        name = self.random.choice("tuv")
        self.topics.set(**{name: min(self.topics.sizes.get(name, 0) + 1, 8)})

    def pass_time(self) -> None:
        """Long enough that who said nothing since the last time is taken out."""
        self.group.wait(self.random.choice([1, 20, 30]))

    def fail_over(self) -> None:
        self.group.restart(compacted=self.random.random() < 0.5)

    def _say(self, call: Callable[[], object]) -> Callable[[Client], None]:
        def say(client: Client) -> None:
            if not self._said(call):
                client.start_again()

        return say

    def _said(self, call: Callable[[], object]) -> bool:
        """Whether the group took it; a member that it does not know any more joins again."""
        try:
            call()
        except Rejected as refused:
            assert refused.code in {
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
            }
            return False
        return True


def test_each_partition_has_one_reader_through_a_history(
    histories: Histories,
) -> None:
    histories.run(lambda seed: History(seed).run())


HOLES: dict[str, Plant] = {
    "what another has is given": lambda patch: patch.setattr(
        LoggedGroup, "is_free", lambda *_, **__: True
    ),
    "what is asked back counts as given up": lambda patch: patch.setattr(
        consumer_member, "_still_owns", lambda *_: False
    ),
    "what a member has yet to apply counts as given up": lambda patch: patch.setattr(
        consumer_member,
        "_must_be_asked",
        lambda owned, given_up: consumer_member._still_owns(owned.partitions, given_up),
    ),
    "what is to be given up is not kept": lambda patch: patch.setattr(
        Member, "held", lambda member: consumer_member.pairs_of(member.assigned)
    ),
}


@pytest.mark.parametrize("hole", list(HOLES))
def test_a_planted_hole_is_seen(hole: str, planting: Planting) -> None:
    planting.is_found(HOLES[hole], lambda seed: History(seed).run(), match=r"G1|G5")
