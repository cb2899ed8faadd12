"""`kafka-consumer-groups` on groups whose members live, and on what they leave behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from harness.clients.confluent import Confluent
from harness.clients.facts import Record
from harness.clients.kafka_tools import KafkaTools
from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("java-groups-tool"), brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(one: Cluster) -> Iterator[KafkaTools]:
    with KafkaTools(one.bootstrap) as running:
        yield running


def member(cluster: Cluster, group: str, topic: str, protocol: str) -> Consumer:
    """One that has both partitions and committed five records of each."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "quay",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])

    def has_both() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 2

    until(has_both, "both partitions")
    places = consumer.assignment()
    for place in places:
        place.offset = 5
    consumer.commit(offsets=places, asynchronous=False)
    return consumer


def rows(said: str, group: str) -> list[list[str]]:
    """The lines of a table that are about the group, in words."""
    lines = (line.split() for line in said.splitlines())
    return sorted(words for words in lines if words and words[0].strip('"') == group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_reset_and_deleted(
    one: Cluster, tools: KafkaTools, tmp_path: Path, protocol: str
) -> None:
    writer = Confluent(one.bootstrap)
    group, topic = f"g-{protocol}", f"t-{protocol}"
    one.done("topic", "create", topic, "-p", "2")
    for partition in range(2):
        writer.produce(topic, [Record(b"%d" % n) for n in range(10)], partition=partition)
    consumer = member(one, group, topic, protocol)

    listed = rows(tools.tool(GROUPS, "--list", "--state"), group)
    assert listed == [[group, "Stable"]]
    assert tools.tool(GROUPS, "--list", "--type", protocol).split().count(group) == 1
    said = tools.tool(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    ((_, _, host, client, *_),) = rows(said, group)
    assert (host, client) == ("/127.0.0.1", "quay"), said
    assert f"{topic}(0,1)" in said or f"{topic}:0,1" in said, said
    said = tools.tool(GROUPS, "--describe", "--group", group, "--state")
    assert rows(said, group)[0][-2:] == ["Stable", "1"], said
    said = tools.tool(GROUPS, "--describe", "--group", group, "--offsets")
    assert [row[1:6] for row in rows(said, group)] == [
        [topic, "0", "5", "10", "5"],
        [topic, "1", "5", "10", "5"],
    ]

    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-latest")
    assert "is Stable" in _complaint(tools, *reset)
    assert "GroupNotEmptyException" in _complaint(tools, "--delete", "--group", group)
    consumer.close()

    assert _offsets(tools, *reset, "--dry-run") == [10, 10]
    assert _committed(tools, group) == [5, 5], "a dry run changes nothing"
    plan = tmp_path / "plan.csv"
    plan.write_text(tools.tool(GROUPS, *reset, "--dry-run", "--export"))
    from_file = ("--reset-offsets", "--group", group, "--from-file", str(plan))
    assert _offsets(tools, *from_file, "--execute") == [10, 10]
    assert _committed(tools, group) == [10, 10]
    _offsets(tools, *reset[:-1], "--shift-by", "-2", "--execute")
    assert _committed(tools, group) == [8, 8]
    one_gone = ("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert "Successful" in tools.tool(GROUPS, *one_gone)
    assert _committed(tools, group) == [8]
    assert "successful" in tools.tool(GROUPS, "--delete", "--group", group)
    assert group not in tools.tool(GROUPS, "--list").split()


def _complaint(tools: KafkaTools, *words: str) -> str:
    """All it says where it may not: it ends well all the same."""
    said = tools.run(GROUPS, "--bootstrap-server", tools.bootstrap, *words)
    return said.out + said.err


def _offsets(tools: KafkaTools, *words: str) -> list[int]:
    """What a reset says the new offsets are, by partition."""
    group = words[words.index("--group") + 1]
    return [int(row[3]) for row in rows(tools.tool(GROUPS, *words), group)]


def _committed(tools: KafkaTools, group: str) -> list[int]:
    said = tools.tool(GROUPS, "--describe", "--group", group, "--offsets")
    return [int(row[3]) for row in rows(said, group) if row[3] != "-"]
