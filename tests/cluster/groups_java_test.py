"""Java's consumer in a group of the consumer protocol, and Kafka's tools on it and its log."""

import re
from collections.abc import Iterator

import pytest

from harness.clients.kafka_tools import KafkaTools
from harness.processes.cluster import Cluster

pytestmark = pytest.mark.slow

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("java-groups"), brokers=1) as cluster:
        yield cluster


def test_javas_consumer_joins_reads_commits_and_leaves(one: Cluster) -> None:
    one.done("topic", "create", "java", "-p", "3")
    one.done("produce", "java", text="".join(f"{number}\n" for number in range(30)))
    with KafkaTools(one.bootstrap) as tools:
        said = tools.tool(
            CONSUMER,
            "--topic",
            "java",
            "--group",
            "j",
            "--max-messages",
            "30",
            "--timeout-ms",
            "20000",
            "--command-property",
            "group.protocol=consumer",
            "--command-property",
            "auto.offset.reset=earliest",
        )
        assert sorted(map(int, said.split())) == list(range(30))
        described = tools.tool(GROUPS, "--describe", "--group", "j", "--offsets")
        rows = [line.split() for line in described.splitlines() if line.startswith("j ")]
        assert sum(int(row[3]) for row in rows) == 30, described
        assert {row[5] for row in rows} == {"0"}, "no lag"
        state = tools.tool(GROUPS, "--describe", "--group", "j", "--state", "--verbose")
        assert "Empty" in state, state
        logs = [*one.data.glob("broker-0/*/__consumer_offsets-*/*.log")]
        files = ",".join(str(path) for path in logs if path.stat().st_size)
        dumped = tools.run(DUMP, "--offsets-decoder", "--files", files).out
    kinds = set(re.findall(r'key: \{"type":"(\d+)"', dumped))
    assert kinds == {"1", "3", "5", "6", "7", "8"}, dumped
    assert "Failed to decode" not in dumped
    assert '"memberEpoch":1' in dumped


def test_javas_consumer_in_a_classic_group_and_kafkas_decoder_on_its_log(one: Cluster) -> None:
    one.done("topic", "create", "classic", "-p", "2")
    one.done("produce", "classic", text="".join(f"{number}\n" for number in range(20)))
    with KafkaTools(one.bootstrap) as tools:
        said = tools.tool(
            CONSUMER,
            "--topic",
            "classic",
            "--group",
            "c",
            "--max-messages",
            "20",
            "--timeout-ms",
            "20000",
            "--command-property",
            "auto.offset.reset=earliest",
        )
        assert sorted(map(int, said.split())) == list(range(20))
        described = tools.tool(GROUPS, "--describe", "--group", "c", "--offsets")
        rows = [line.split() for line in described.splitlines() if line.startswith("c ")]
        assert sum(int(row[3]) for row in rows) == 20, described
        assert "c" in tools.tool(GROUPS, "--list", "--type", "classic").split()
        reset = tools.tool(
            GROUPS,
            "--reset-offsets",
            "--group",
            "c",
            "--topic",
            "classic",
            "--to-earliest",
            "--execute",
        )
        assert len([line for line in reset.splitlines() if line.startswith("c ")]) == 2, reset
        logs = [*one.data.glob("broker-0/*/__consumer_offsets-*/*.log")]
        files = ",".join(str(path) for path in logs if path.stat().st_size)
        dumped = tools.run(DUMP, "--offsets-decoder", "--files", files).out
        assert "Failed to decode" not in dumped
        assert '"protocolType":"consumer"' in dumped
        assert '"generation":1' in dumped
        gone = tools.tool(GROUPS, "--delete", "--group", "c")
        assert "successful" in gone, gone
