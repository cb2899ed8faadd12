"""The consumer protocol by confluent-kafka, unmodified, on real processes."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

RECORDS = 60
PARTITIONS = 6


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("groups"), brokers=3) as cluster:
        yield cluster


def topic_with_records(trio: Cluster, name: str) -> str:
    trio.done("topic", "create", name, "-p", str(PARTITIONS), "-r", "3")
    producer = Producer({"bootstrap.servers": trio.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return name


class Member:
    """One consumer, what it read, and what it has now."""

    def __init__(self, trio: Cluster, group: str, *topics: str, **settings: str) -> None:
        self.read: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": trio.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(list(topics))

    def turn(self, timeout_s: float = 0.05) -> None:
        for message in self.consumer.consume(100, timeout_s):
            error, value = message.error(), message.value()
            assert error is None or error.retriable(), error
            if error is None and value is not None:
                self.read.append(int(value))

    def has(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}


def turns(*members: Member) -> None:
    for member in members:
        member.turn()


def is_back(member: Member) -> bool:
    member.turn()
    return bool(member.has())


def at_the_end(*members: Member) -> bool:
    """Whether all that there is was read by who has it now; it may have been read before, too."""
    turns(*members)
    positions = [
        one.offset
        for member in members
        for one in member.consumer.position(member.consumer.assignment())
    ]
    return positions == [RECORDS // PARTITIONS] * PARTITIONS


def shared(topic: str, *members: Member) -> bool:
    """Whether each partition has one owner, and the shares are even."""
    turns(*members)
    has = [member.has() for member in members]
    sizes = [len(one) for one in has]
    whole = {(topic, number) for number in range(PARTITIONS)}
    return set.union(*has) == whole and sum(sizes) == PARTITIONS and max(sizes) - min(sizes) < 2


def test_members_join_leave_and_go_on_where_the_group_was(trio: Cluster) -> None:
    topic = topic_with_records(trio, "shared")
    first = Member(trio, "g", topic)
    until(lambda: shared(topic, first) and len(first.read) == RECORDS, "one reads all")
    assert sorted(first.read) == list(range(RECORDS))
    first.consumer.commit(asynchronous=False)
    second, third = Member(trio, "g", topic), Member(trio, "g", topic)
    until(lambda: shared(topic, first, second, third), "three share")
    assert second.read == third.read == [], "what was committed is not read again"
    first.consumer.close()
    until(lambda: shared(topic, second, third), "two share what one left")
    second.consumer.close()
    third.consumer.close()


def test_a_pattern_finds_the_topic_that_comes_later(trio: Cluster) -> None:
    member = Member(trio, "by-pattern", "^later-.*")
    for _ in range(10):
        member.turn()
    topic = topic_with_records(trio, "later-one")
    until(lambda: shared(topic, member) and len(member.read) == RECORDS, "it reads the new topic")
    member.consumer.close()


def test_a_static_member_comes_back_to_its_partitions(trio: Cluster) -> None:
    topic = topic_with_records(trio, "static")
    first = Member(trio, "static", topic, group_instance_id="one")
    second = Member(trio, "static", topic, group_instance_id="two")
    until(lambda: shared(topic, first, second), "two share")
    had = first.has()
    first.consumer.close()
    again = Member(trio, "static", topic, group_instance_id="one")
    until(lambda: is_back(again), "it is back")
    assert again.has() == had
    again.consumer.close()
    second.consumer.close()


def test_a_group_outlives_its_coordinator(trio: Cluster) -> None:
    topic = topic_with_records(trio, "outlives")
    first, second = Member(trio, "outlives", topic), Member(trio, "outlives", topic)
    until(lambda: shared(topic, first, second), "two share")
    until(lambda: at_the_end(first, second), "all is read")
    first.consumer.commit(asynchronous=False)
    second.consumer.commit(asynchronous=False)
    broker = coordinator(trio, "outlives")
    trio.done("broker", "kill", str(broker))
    late = Member(trio, "outlives", topic)
    until(lambda: shared(topic, first, second, late), "three share at another coordinator")
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = first.consumer.committed(partitions, 10)
    assert [one.offset for one in committed] == [RECORDS // PARTITIONS] * PARTITIONS
    assert late.read == []
    for member in (first, second, late):
        member.consumer.close()
    trio.done("broker", "start", str(broker))


def coordinator(trio: Cluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": trio.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(10)
    node: int = described.coordinator.id
    return node
