"""Groups whose clients say anything that can be decoded: no time-out, order or id ends a broker."""

import random
from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from harness.suite.budgets import Histories
from property.groups_any_log_test import GROUPS, SUBSCRIPTION, Coordinator, Garbled
from tidelog.kernel.shard import Decision
from tidelog.node.groups.codec import StoredRecord
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.groups.requests import JoinGroup, SyncGroup, Who

REQUESTS = 40
TIMES_MS = (-(2**31), -1, 0, 1, 1_000, 1_000, 1_000, 2**31 - 1)
SAID = {
    "one": (("range", SUBSCRIPTION),),
    "two": (("range", b"\0"), ("roundrobin", SUBSCRIPTION)),
    "none": (),
}


class Clients(Garbled):
    """They remember ids that they were given, and use those of others."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.known: deque[tuple[str, int]] = deque(maxlen=6)

    def heard(self, reply: Any) -> None:
        member_id = getattr(reply, "member_id", None)
        if member_id:
            epoch = getattr(reply, "generation", getattr(reply, "epoch", -1))
            self.known.append((member_id, epoch))

    def request(self) -> Any:
        asked: Any = super().request()
        if not self.known or self.random.random() < 0.3:
            return asked
        member_id, epoch = self.pick(*self.known, *[self.known[-1]] * 4)
        if self.random.random() < 0.3:
            who = Who(member_id, None, epoch)
            return SyncGroup(self.pick(*GROUPS), who, None, None, ((member_id, b"share"),))
        if isinstance(asked, ConsumerHeartbeat):
            return replace(asked, member_id=member_id, epoch=self.pick(epoch, epoch, 0, -1, -2))
        if hasattr(asked, "who"):
            return replace(asked, who=Who(member_id, asked.who.instance_id, epoch))
        return asked

    def _join(self, group: str, who: Who) -> JoinGroup:
        return replace(
            super()._join(group, who),
            session_timeout_ms=self.pick(1, 100, 600_000),
            rebalance_timeout_ms=self.pick(*TIMES_MS),
            protocols=SAID[self.pick("one", "one", "two", "none")],
            protocol_type=self.pick("consumer", "consumer", "connect", ""),
            needs_known_id=self.random.random() < 0.5,
            may_skip_assignment=self.random.random() < 0.5,
        )

    def _beat(self, group: str, who: Who) -> ConsumerHeartbeat:
        return replace(
            super()._beat(group, who),
            rebalance_timeout_ms=self.pick(*TIMES_MS),
            topics=self.pick(None, (), ("t",), ("gone", "t")),
            regex=self.pick(None, None, "t.*", "(", ""),
            assignor=self.pick(None, "range", "uniform", "nobody's"),
        )


class Asked(Coordinator):
    """A coordinator of clients."""

    def __init__(self, clients: Clients) -> None:
        super().__init__()
        self._clients = clients

    def _take(self, decision: Decision[StoredRecord, Any]) -> None:
        super()._take(decision)
        for _, reply in decision.replies:
            self._clients.heard(reply)


def talk(seed: int) -> None:
    clients = Clients(seed)
    one = Asked(clients)
    one.shard.loaded(one.now)
    for _ in range(REQUESTS):
        one.decide(clients.request())
        one.wait(clients.pick(0, 0, 1, 10, 700, 61_000))


@pytest.mark.timeout(900)
def test_whatever_clients_say_a_coordinator_serves_on(histories: Histories) -> None:
    histories.run(talk)


def test_members_come_into_being_in_such_histories() -> None:
    """Else nothing would be shown."""
    seen = set()
    for seed in range(60):
        clients = Clients(seed)
        one = Asked(clients)
        one.shard.loaded(one.now)
        rng = random.Random(seed)
        for _ in range(REQUESTS):
            one.decide(clients.request())
            one.wait(rng.choice([0, 1, 10, 700]))
            seen |= {(group.kind, group.state) for group in one.shard._groups.values()}
    assert {state for kind, state in seen if kind == "classic"} == {
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    }
    assert {state for kind, state in seen if kind == "consumer"} >= {"Stable", "Reconciling"}
