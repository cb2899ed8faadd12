"""Replicas that catch up are held to the rate that Kafka's settings say; nobody else is."""

from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.simulation.cluster import A, B, C, D
from harness.simulation.moves import Move
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.replica.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    SAVED_SHARE,
    Allowance,
    throttled_of,
)
from tidelog.wire.replication import Ack, Batch, Bytes

WINDOW_MS = 5_000
OVER = 1.2
"""Of the set rate, over any such window: no more may go."""
RATE = 100_000
Sent = list[tuple[Instant, int]]


def most_in_a_window(sent: Sent) -> int:
    """The most bytes in any window of five seconds."""
    sums = [0, *accumulate(size for _, size in sent)]
    most, first = 0, 0
    for last, (now, _) in enumerate(sent):
        while sent[first][0] <= now - ms(WINDOW_MS):
            first += 1
        most = max(most, sums[last + 1] - sums[first])
    return most


# -- the allowance


@given(
    st.integers(1, 10_000_000),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 100)), min_size=1, max_size=300),
)
def test_in_no_window_more_goes_than_the_rate_and_two_shares(
    rate: int, asks: Iterable[tuple[int, int]]
) -> None:
    now, sent = Instant(0), Sent()
    allowance = Allowance(now, rate)
    for wait_ms, percent in asks:
        now = Instant(now + ms(wait_ms))
        while allowance.is_open(now):
            size = max(1, allowance.chunk * percent // 100)
            allowance.take(now, size)
            sent.append((now, size))
    assert most_in_a_window(sent) <= rate * (5 + 2 / SAVED_SHARE) + 2
    assert 5 + 2 / SAVED_SHARE <= OVER * 5


def test_what_was_not_used_is_saved_up_for_an_eighth_of_a_second_and_no_longer() -> None:
    allowance = Allowance(Instant(0), 8_000)
    hour = Instant(ms(3_600_000))
    assert allowance.chunk == 1_000
    allowance.take(hour, 1_001)
    assert not allowance.is_open(hour)
    assert not allowance.is_open(Instant(hour + 1))
    assert allowance.is_open(Instant(hour + ms(1)))


def test_a_batch_larger_than_a_share_goes_whole_and_is_paid_for_afterwards() -> None:
    allowance = Allowance(Instant(0), 1_000)
    allowance.take(Instant(0), 10_000)
    assert not allowance.is_open(Instant(ms(9_999)))
    assert allowance.is_open(Instant(ms(10_000)))


def test_another_rate_counts_from_then_on() -> None:
    allowance = Allowance(Instant(0), 1_000)
    allowance.take(Instant(0), 10_000)
    allowance.change(Instant(ms(1_000)), 9_000)
    assert not allowance.is_open(Instant(ms(1_999)))
    assert allowance.is_open(Instant(ms(2_000)))


def test_a_rate_of_nothing_lets_nothing_pass() -> None:
    assert not Allowance(Instant(0), 0).is_open(Instant(ms(10_000)))


@pytest.mark.parametrize(
    ("text", "held"),
    [("*", {(0, 1), (7, 2)}), ("0:1", {(0, 1)}), (" 0:1, 7:2", {(0, 1), (7, 2)}), ("", set())],
)
def test_a_topic_names_replicas_one_by_one_or_all(text: str, held: set[tuple[int, int]]) -> None:
    found = throttled_of({LEADER_REPLICAS: text})
    asked = [(0, BrokerId(1)), (7, BrokerId(2))]
    assert {one for one in asked if found and found.leads(*one)} == held
    assert not found or not any(found.follows(*one) for one in asked)


# -- the cluster


class Held(Move):
    """A log that takes a while at the rate that is set."""

    def __init__(self, *, batches: int = 60, size: int = 20_000) -> None:
        super().__init__()
        self.sent: dict[tuple[BrokerId, BrokerId], Sent] = {}
        for _ in range(batches):
            self.clients.wrote(A, size=size)
        self.cluster.look_at_message = self._note

    def _note(self, sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        before = len(self.said)
        passes = self._look(sender, to, parts)
        sizes = [one.size if isinstance(one, Batch) else 0 for _, _, one in self.said[before:]]
        sizes += [len(parts[-1])] * any(isinstance(one, Bytes) for _, _, one in self.said[before:])
        self.sent.setdefault((sender, to), []).append((self.cluster.now, sum(sizes)))
        return passes

    def set_rate(self, name: str, rate: int = RATE) -> None:
        self.cluster.configure_all(name, str(rate))

    def to(self, broker: BrokerId) -> Sent:
        found = [one for (_, to), sent in self.sent.items() if to == broker for one in sent]
        return sorted(found)


@pytest.mark.parametrize(
    ("rate", "replicas", "who"),
    [(LEADER_RATE, LEADER_REPLICAS, "0:0"), (FOLLOWER_RATE, FOLLOWER_REPLICAS, "0:3")],
)
def test_who_is_added_is_sent_no_more_than_the_rate_and_gets_there(
    rate: str, replicas: str, who: str
) -> None:
    it = Held()
    it.set_rate(rate)
    it.cluster.configure("t", replicas, who)
    began = it.cluster.now
    it.cluster.reassign(A, B, C, D)
    it.until_settled_on(A, B, C, D)
    total = sum(size for _, size in it.to(D))
    assert total > 10 * RATE
    assert most_in_a_window(it.to(D)) <= OVER * RATE * 5
    took_s = (it.cluster.now - began) / ms(1_000)
    assert took_s <= 1.2 * total / RATE  # and not much less either
    it.check(A, B, C, D)


def test_who_is_in_sync_or_not_named_is_not_held() -> None:
    it, others = Held(), ["u", "v", "w"]
    it.set_rate(LEADER_RATE, 1)
    it.cluster.configure("t", LEADER_REPLICAS, "*")
    for topic in others:
        it.cluster.create(topic, A, B)
        it.clients.wrote(A, topic=topic, size=20_000)
    it.cluster.reassign(A, B, C, D)
    it.cluster.run(1_000)
    for topic in others:
        it.cluster.reassign(A, D, topic=topic)
    it.cluster.until(lambda: all({*it.cluster.view(one).replicas} == {A, D} for one in others))
    began = it.cluster.now
    it.wrote(A, 20)
    assert it.cluster.now - began < ms(100)
    assert it.isr() == {A, B, C}
    it.set_rate(LEADER_RATE, 1 << 40)
    it.until_settled_on(A, B, C, D)


def test_two_leaders_share_what_a_follower_may_be_sent() -> None:
    it = Held(batches=0)
    it.cluster.create("u", B, C)
    for leader, topic in ((A, "t"), (B, "u")):
        for _ in range(40):
            it.clients.wrote(leader, topic=topic, size=20_000)
        it.cluster.configure(topic, FOLLOWER_REPLICAS, "0:3")
    it.set_rate(FOLLOWER_RATE)
    it.cluster.reassign(A, B, C, D)
    it.cluster.reassign(B, C, D, topic="u")
    it.until_settled_on(A, B, C, D)
    it.cluster.until(lambda: len(it.cluster.view("u").isr) == 3)
    assert most_in_a_window(it.to(D)) <= OVER * RATE * 5


def test_new_records_too_are_held_while_their_follower_is_not_in_sync() -> None:
    it = Held(batches=0)
    it.set_rate(LEADER_RATE)
    it.cluster.configure("t", LEADER_REPLICAS, "*")
    it.lost = lambda sender, _to, one: sender == D and isinstance(one, Ack)
    it.cluster.reassign(A, B, C, D)
    it.cluster.until(lambda: it.end(D) == it.end(A))
    for _ in range(100):
        it.clients.wrote(A, size=20_000)
    it.cluster.run(WINDOW_MS)
    assert D not in it.isr()
    assert RATE < most_in_a_window(it.to(D)) <= OVER * RATE * 5
    it.let_go()
    it.until_settled_on(A, B, C, D)


def test_the_hold_ends_with_the_setting() -> None:
    it = Held()
    it.set_rate(LEADER_RATE, 1)
    it.cluster.configure("t", LEADER_REPLICAS, "*")
    it.cluster.reassign(A, B, C, D)
    it.cluster.run(2_000)
    assert it.view.is_moving
    it.cluster.configure("t", LEADER_REPLICAS, "")
    began = it.cluster.now
    it.until_settled_on(A, B, C, D)
    assert it.cluster.now - began < ms(2_000)
