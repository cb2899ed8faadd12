"""The settings that hold a move of replicas back, as Kafka's own tool computes them."""

from tidelog.clients.admin.configs import Change, Kind, Operation, Resource
from tidelog.clients.admin.reassignments import Ongoing
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Move,
    moves,
    settings_of,
)

ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))


def test_who_has_a_partition_gives_and_who_comes_gets() -> None:
    found = moves({ZERO: (0, 1, 2)}, {}, {ZERO: (2, 3, 4)})
    assert found == {ZERO: Move((0, 1, 2), (3, 4))}


def test_what_is_under_way_goes_on_from_where_it_began() -> None:
    ongoing = {ZERO: Ongoing((3, 0, 1), (3,), (1,)), ONE: Ongoing((0, 2), (2,), ())}
    found = moves({ZERO: (3, 0, 1)}, ongoing, {ZERO: (4, 0)})
    assert found == {ZERO: Move((0, 1), (4,)), ONE: Move((0,), (2,))}


def test_topics_are_set_before_the_rates_of_all_brokers_that_take_part() -> None:
    moving = {ZERO: Move((0, 1), (3,)), ONE: Move((1,), ()), ("u", Partition(0)): Move((2,), (0,))}
    found = settings_of(moving, 1000)
    assert [one.name for one in found] == ["t", "u", "0", "1", "2", "3"]
    assert found[Resource(Kind.TOPIC, "t")] == [
        Change(LEADER_REPLICAS, Operation.SET, "0:0,0:1,1:1"),
        Change(FOLLOWER_REPLICAS, Operation.SET, "0:3"),
    ]
    assert found[Resource(Kind.BROKER, "3")] == [
        Change(LEADER_RATE, Operation.SET, "1000"),
        Change(FOLLOWER_RATE, Operation.SET, "1000"),
    ]


def test_a_topic_that_only_loses_replicas_has_nobody_who_gets() -> None:
    (changes,) = [
        found
        for resource, found in settings_of({ZERO: Move((0, 1), ())}, 1).items()
        if resource.kind is Kind.TOPIC
    ]
    assert [one.name for one in changes] == [LEADER_REPLICAS]
