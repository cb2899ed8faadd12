"""Unmodified clients in groups of the classic protocol: they share, commit, leave and come back."""

import asyncio
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, fresh_topic
from harness.processes.cluster import WAIT_S, Cluster, until
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

pytestmark = pytest.mark.slow

QUICK = {"heartbeat.interval.ms": 100, "topic.metadata.refresh.interval.ms": 200}
"""A member learns by its heartbeat that others came: with the default of 3 s so late."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("groups"), brokers=3) as cluster:
        yield cluster


def topic_with(cluster: Cluster, partitions: int, records: int, name: str = "") -> str:
    topic = name or fresh_topic()
    client = Confluent(cluster.bootstrap)
    client.create_topic(topic, partitions=partitions)
    for partition in range(partitions):
        client.produce(topic, [Record(b"%d" % n) for n in range(records)], partition=partition)
    return topic


def by_confluent(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    consumer = member(bootstrap, group, topic)
    found: list[int] = []

    def look() -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            found.append(offset)
        return len(found) == count

    until(look, f"{count} records for {group}")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def by_kafka_python(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    )
    found: list[int] = []

    def look() -> bool:
        # Time for a whole join: 3.0.12 forgets the assignment that comes between two polls.
        for rows in consumer.poll(timeout_ms=int(WAIT_S * 1_000)).values():
            found.extend(row.offset for row in rows)
        return len(found) >= count

    # Left open it goes on connecting where nobody listens any more, and drops a socket each time.
    with closing(consumer):
        until(look, f"{count} records for {group}")
        consumer.commit()
    return found


def by_aiokafka(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    async def read() -> list[int]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            found = [(await consumer.getone()).offset for _ in range(count)]
            await consumer.commit()
        return found

    return asyncio.run(asyncio.wait_for(read(), 20))


READ = {"confluent": by_confluent, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}


@pytest.mark.parametrize("name", READ)
def test_who_comes_later_goes_on_where_the_group_has_read_to(three: Cluster, name: str) -> None:
    topic = topic_with(three, 1, 10)
    others = [other for other in READ if other != name]
    assert READ[name](three.bootstrap, topic, topic, 4) == [0, 1, 2, 3]
    assert READ[others[0]](three.bootstrap, topic, topic, 3) == [4, 5, 6]
    assert READ[others[1]](three.bootstrap, topic, topic, 3) == [7, 8, 9]


def member(bootstrap: str, group: str, *topics: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUICK,
            **settings,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def turn(*members: Consumer) -> None:
    for one in members:
        one.poll(0.02)


def owned(one: Consumer) -> set[tuple[str, int]]:
    return {(place.topic, place.partition) for place in one.assignment()}


def share(members: Sequence[Consumer], what: Callable[[], bool], said: str) -> None:
    """Let the members run until it is so."""

    def look() -> bool:
        turn(*members)
        return what()

    until(look, said)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_and_a_leave_gives_all_to_who_is_left(three: Cluster, strategy: str) -> None:
    topic = topic_with(three, 4, 0)
    settings = {"partition.assignment.strategy": strategy}
    one = member(three.bootstrap, topic, topic, **settings)
    share([one], lambda: len(owned(one)) == 4, "one has all")
    two = member(three.bootstrap, topic, topic, **settings)
    share([one, two], lambda: len(owned(one)) == len(owned(two)) == 2, "both have half")
    assert not owned(one) & owned(two)
    kept = owned(one)
    two.close()
    share([one], lambda: len(owned(one)) == 4, "one has all again")
    assert kept <= owned(one)
    one.close()


def test_a_new_topic_of_a_pattern_and_more_partitions_come_to_the_members(three: Cluster) -> None:
    topic = topic_with(three, 1, 0)
    one = member(three.bootstrap, topic, f"^{topic}.*")
    share([one], lambda: owned(one) == {(topic, 0)}, "the first topic")
    topic_with(three, 1, 0, name=f"{topic}-new")
    share([one], lambda: (f"{topic}-new", 0) in owned(one), "a topic that fits the pattern")
    admin = AdminClient({"bootstrap.servers": three.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    share([one], lambda: (topic, 2) in owned(one), "partitions that were added")
    one.close()


def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_stops(three: Cluster) -> None:
    topic = topic_with(three, 4, 0)
    other = member(three.bootstrap, topic, topic)
    one = member(three.bootstrap, topic, topic, **{"group.instance.id": "one"})
    share([one, other], lambda: len(owned(one)) == len(owned(other)) == 2, "both have half")
    revoked: list[object] = []
    other.subscribe([topic], on_revoke=lambda _consumer, places: revoked.append(places))
    share([one, other], lambda: bool(revoked), "it gives all up, as who subscribes anew does")
    share([one, other], lambda: len(owned(one)) == len(owned(other)) == 2, "both have half")
    before = owned(one)
    revoked.clear()
    one.close()
    one = member(three.bootstrap, topic, topic, **{"group.instance.id": "one"})
    share([one, other], lambda: len(owned(one)) == 2, "it is back")
    assert owned(one) == before
    assert revoked == []
    one.close()
    other.close()


def coordinator_of(cluster: Cluster, group: str) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics
    partitions = topics[OFFSETS_TOPIC].partitions
    return int(partitions[partition_of(group, len(partitions))].leader)


def is_committed(one: Consumer, place: TopicPartition) -> bool:
    """It may be refused while nobody coordinates the group."""
    try:
        (done,) = one.commit(offsets=[place], asynchronous=False)
    except KafkaException:
        return False
    return done.error is None


def test_members_stay_and_commits_are_kept_when_their_coordinator_is_killed(three: Cluster) -> None:
    topic = topic_with(three, 2, 0)
    one = member(three.bootstrap, topic, topic)
    revoked: list[object] = []
    one.subscribe([topic], on_revoke=lambda _consumer, places: revoked.append(places))
    share([one], lambda: len(owned(one)) == 2, "one has all")
    killed = coordinator_of(three, topic)
    for number in range(300):
        if number == 100:
            three.done("broker", "kill", str(killed))
        place = TopicPartition(topic, 0, number)
        until(partial(is_committed, one, place), f"{number} is committed")
    (found,) = one.committed([TopicPartition(topic, 0)], timeout=10)
    assert found.offset == 299
    turn(one)
    assert revoked == [], "the new coordinator knows the group as it was"
    until(lambda: coordinator_of(three, topic) != killed, "whoever is asked knows of another one")
    one.close()
    three.done("broker", "start", str(killed))
