"""A consumer is killed between reading, working and committing: what its successor reads. 5.18."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, fresh_topic
from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

CRASHES = """
import os, signal, sys
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, commits_first = sys.argv[1], sys.argv[2], sys.argv[3] == "at-most-once"
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": topic, "group.instance.id": "worker",
    "auto.offset.reset": "earliest", "enable.auto.commit": False,
})
consumer.subscribe([topic])
for number in range(4 if commits_first else 8):
    message = None
    while message is None:
        message = consumer.poll(0.1)
    if commits_first and number == 0:
        consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    print(message.offset(), flush=True)
    if not commits_first and number == 4:
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("crash"), brokers=1) as cluster:
        yield cluster


def processed(cluster: Cluster, topic: str, how: str) -> list[int]:
    """Ten records; what the worker had done when it was killed."""
    client = Confluent(cluster.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Record(b"%d" % n) for n in range(10)])
    done = subprocess.run(
        [sys.executable, "-c", CRASHES, cluster.bootstrap, topic, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return [int(line) for line in done.stdout.split()]


def successor(cluster: Cluster, topic: str) -> Consumer:
    """As a static member it has the partitions at once: nobody waits for a time-out."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "group.instance.id": "worker",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_who_commits_behind_its_work_does_some_of_it_twice(one: Cluster) -> None:
    topic = fresh_topic()
    assert processed(one, topic, "at-least-once") == list(range(8))
    consumer = successor(one, topic)
    found: list[int | None] = []

    def look() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            found.append(message.offset())
        return len(found) == 5

    until(look, "the rest")
    assert found == [5, 6, 7, 8, 9]
    consumer.close()


def test_who_commits_before_its_work_never_does_some_of_it(one: Cluster) -> None:
    topic = fresh_topic()
    assert processed(one, topic, "at-most-once") == list(range(4))
    client = Confluent(one.bootstrap)
    consumer = successor(one, topic)
    client.produce(topic, [Record(b"next")])
    found: list[int | None] = []

    def look() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            found.append(message.offset())
        return bool(found)

    until(look, "what came later")
    assert found == [10]
    consumer.close()


COMMITS_BY_ITSELF = """
import os, signal, sys, time
from kafka import KafkaConsumer

bootstrap, topic = sys.argv[1:]
consumer = KafkaConsumer(
    topic, bootstrap_servers=bootstrap, group_id=topic, group_instance_id="worker",
    auto_offset_reset="earliest", enable_auto_commit=True, auto_commit_interval_ms=1,
    max_poll_records=5,
)
polls = 0
while polls < 2:
    # Long enough to join within: see "kafka-python" in docs/clients.md.
    for records in consumer.poll(timeout_ms=30_000).values():
        polls += 1
        print(*(record.offset for record in records), flush=True)
        time.sleep(0.05)  # work: the interval is over when it asks for more
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_has_its_client_commit_has_committed_what_the_poll_before_gave(one: Cluster) -> None:
    """Never what it is working on."""
    topic = fresh_topic()
    client = Confluent(one.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Record(b"%d" % n) for n in range(10)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMITS_BY_ITSELF, one.bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    assert done.stdout.splitlines() == ["0 1 2 3 4", "5 6 7 8 9"]
    rows = one.done("group", "describe", topic, "--json").document["offsets"]
    committed = [row["current"] for row in rows]
    assert committed in ([None], [5]), "at most what the first poll gave"
    consumer = successor(one, topic)
    found: list[int | None] = []

    def look() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            found.append(message.offset())
        return len(found) == 10 - (committed[0] or 0)

    until(look, "the rest")
    assert found == list(range(committed[0] or 0, 10)), "none is left out"
    consumer.close()
