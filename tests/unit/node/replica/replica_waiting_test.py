"""Requests that wait for a partition are woken once: by bytes, by trouble, or by time."""

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.replica.waiting import Waiter, Waiting

A: TopicPartition = ("a", Partition(0))
B: TopicPartition = ("b", Partition(0))


class Woken:
    def __init__(self) -> None:
        self.at: list[int] = []

    def __call__(self, now: Instant) -> None:
        self.at.append(now)


def park(waiting: Waiting, *keys: TopicPartition, missing: int = 1, deadline: int = 100) -> Woken:
    woken = Woken()
    waiting.park(Waiter(keys, Instant(deadline), woken, missing=missing))
    return woken


def waiting_with_alarms() -> tuple[Waiting, list[int]]:
    alarms: list[int] = []
    return Waiting(alarms.append), alarms


def test_a_fetch_wakes_when_enough_bytes_have_come_over_all_its_partitions() -> None:
    waiting, _ = waiting_with_alarms()
    woken = park(waiting, A, B, missing=10)
    waiting.advanced(Instant(1), A, 4)
    waiting.advanced(Instant(2), B, 5)
    assert woken.at == []
    waiting.advanced(Instant(3), A, 1)
    assert woken.at == [3]
    assert waiting.count == 0


def test_bytes_elsewhere_wake_nobody() -> None:
    waiting, _ = waiting_with_alarms()
    woken = park(waiting, A)
    waiting.advanced(Instant(1), B, 1000)
    assert woken.at == []


def test_a_waiter_is_woken_once() -> None:
    waiting, _ = waiting_with_alarms()
    woken = park(waiting, A, B)
    waiting.advanced(Instant(1), A, 1)
    waiting.advanced(Instant(2), B, 1)
    waiting.disturbed(Instant(3), A)
    waiting.expire(Instant(1000))
    assert woken.at == [1]


def test_the_deadline_wakes_with_what_there_is() -> None:
    waiting, _ = waiting_with_alarms()
    early, late = park(waiting, A, deadline=50), park(waiting, A, deadline=60)
    waiting.expire(Instant(50))
    assert (early.at, late.at) == ([50], [])
    assert waiting.deadline() == 60


def test_a_lost_leader_wakes_all_who_wait_for_it() -> None:
    waiting, _ = waiting_with_alarms()
    one, two = park(waiting, A, missing=10**9), park(waiting, A, B, missing=10**9)
    other = park(waiting, B, missing=10**9)
    waiting.disturbed(Instant(7), A)
    assert (one.at, two.at, other.at) == ([7], [7], [])


def test_a_produce_wakes_when_its_own_condition_holds_not_by_bytes() -> None:
    waiting, _ = waiting_with_alarms()
    replicated = False
    woken = Woken()
    waiter = Waiter((A,), Instant(100), woken, missing=0, ready=lambda: replicated)
    waiting.park(waiter)
    waiting.advanced(Instant(1), A, 1_000)
    assert woken.at == []
    replicated = True
    waiting.advanced(Instant(2), A, 1)
    assert woken.at == [2]


def test_the_alarm_is_asked_for_only_when_a_deadline_is_the_earliest() -> None:
    waiting, alarms = waiting_with_alarms()
    park(waiting, A, deadline=50)
    park(waiting, A, deadline=60)
    park(waiting, A, deadline=40)
    assert alarms == [50, 40]


def test_woken_waiters_do_not_pile_up_behind_far_deadlines() -> None:
    waiting, _ = waiting_with_alarms()
    for now in range(10_000):
        park(waiting, A, deadline=10**9 + now)
        waiting.advanced(Instant(now), A, 1)
    assert waiting.remembered <= 2_000


def test_a_waiter_parked_again_while_it_is_woken_is_not_woken_in_the_same_turn() -> None:
    waiting, _ = waiting_with_alarms()
    turns: list[int] = []

    def wake(now: Instant) -> None:
        turns.append(now)
        waiting.park(Waiter((A,), Instant(100), wake, missing=1))

    waiting.park(Waiter((A,), Instant(100), wake, missing=1))
    waiting.advanced(Instant(1), A, 5)
    assert turns == [1]
    waiting.advanced(Instant(2), A, 5)
    assert turns == [1, 2]
