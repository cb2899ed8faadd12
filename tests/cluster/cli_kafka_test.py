"""The commands that speak Kafka's protocol do on Apache Kafka what they do on a cluster of ours."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from harness.kafka.node import kafka_node
from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Commands whose environment names a node of Kafka."""
    with kafka_node(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield Cluster(
            tmp_path_factory.mktemp("there"), environment={"TIDELOG_BOOTSTRAP": bootstrap}
        )


def test_topics_records_and_offsets(kafka: Cluster, golden: Golden) -> None:
    text = script(
        kafka,
        "wait ready",
        "topic create orders -p 3 -c retention.bytes=60000000",
        "topic create orders",
        "topic create other -c retention.byte=1",
        "topic describe orders",
        ("produce orders --key-separator =", "a=1\nb=2\nc=3\n"),
        ("produce orders --key-separator = --compression zstd --json", "a=4\nb=5\nc=6\n"),
        "consume orders -o start:end -f '%p/%o %k %s\\n'",
        "consume orders -o @-1h:@now --json -n 1",
        "topic offsets orders",
        "topic alter orders -p 4",
        "topic delete-records orders --partition 1 --before-offset 1 --yes",
        "topic empty orders --yes",
        "topic offsets orders --json",
        "wait isr orders",
        "topic list",
        "topic delete orders --yes",
        "topic describe orders",
    )
    golden("cli_kafka_topics", text)


def test_a_change_of_settings_is_in_force_when_it_is_told(kafka: Cluster, golden: Golden) -> None:
    """Kafka answers before its brokers know; what we tell is what they know."""
    text = script(
        kafka,
        "topic create bills",
        "config set topic bills retention.bytes=50000000 min.insync.replicas=2",
        "config set topic bills cleanup.policy+=compact",
        "config describe topic bills retention.bytes min.insync.replicas cleanup.policy",
        "config set topic bills retention.byte=1",
        "topic alter bills -c retention.byte=1",
        "topic alter bills -c segment.ms=9000000 --unset retention.bytes",
        "config describe topic bills segment.ms retention.bytes",
        "config unset topic bills min.insync.replicas segment.ms",
        "config set broker 0 log.cleaner.threads=2",
        "config set broker all message.max.bytes=2000000",
        "config lint",
        "config set group readers consumer.session.timeout.ms=50000",
        "config set group readers consumer.session.timeout.m=50000",
        "config describe group readers --changed",
        "config unset group readers consumer.session.timeout.ms",
        "config unset broker all message.max.bytes",
        "config unset broker 0 log.cleaner.threads",
    )
    golden("cli_kafka_settings", text)


def test_partitions_and_what_moves(kafka: Cluster, golden: Golden) -> None:
    """One node has nowhere to move to; a throttle that was left there is taken away."""
    text = script(
        kafka,
        "topic create hulls -p 2",
        "topic describe hulls --at-min-isr --json",
        "topic describe hulls --under-min-isr",
        "partition reassign plan --topics hulls",
        "partition reassign plan --topics hulls --replication-factor 2",
        ("partition reassign apply -", _plan("hulls", 0)),
        ("partition reassign apply -", _plan("hulls", 7)),
        "config set broker 0 follower.replication.throttled.rate=1000",
        "partition reassign status hulls",
        "partition reassign status --json",
        "partition reassign cancel",
        "leader elect hulls",
        "topic delete hulls --yes",
    )
    golden("cli_kafka_partitions", text)


def _plan(topic: str, *replicas: int) -> str:
    row = {"topic": topic, "partition": 0, "replicas": replicas}
    return json.dumps({"version": 1, "partitions": [row]})


def test_a_group_is_explained_as_far_as_the_protocol_tells_and_moved(
    kafka: Cluster, golden: Golden
) -> None:
    """Who came and went, since when who reads what, and how old commits are: out of its log."""
    kafka.done("topic", "create", "ships", "-p", "2")
    kafka.done("produce", "ships", "--partition", "0", text="sloop\nyawl\n")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.environment["TIDELOG_BOOTSTRAP"],
            "group.id": "crew",
            "client.id": "mate",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["ships"])
    read: list[object] = []

    def has_both() -> bool:
        read.extend(consumer.consume(10, 0.1))
        return len(read) == 2

    until(has_both, "both are read", 60)
    consumer.commit(asynchronous=False)
    text = script(kafka, "why group crew")
    consumer.close()
    text += script(
        kafka,
        "why group crew",
        "why group crow",
        "group list --state --json",
        "group describe crew",
        "group describe crew --state",
        "group reset-offsets crew --all-topics --to-earliest",
        "group reset-offsets crew --topic ships --shift-by 1",
        "group reset-offsets crew --topic ships:0 --to-offset 1 --execute",
        "group reset-offsets crew --all-topics --to-current --export",
        "group describe crew --json",
        "group delete crew --yes",
        "group list",
    )
    golden("cli_kafka_why_group", text)
