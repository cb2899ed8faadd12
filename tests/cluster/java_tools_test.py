"""Kafka's own administration tools, from the published jars, against the broker.

All calls go to one JVM.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, Running, fresh_topic, now_ms
from harness.clients.kafka_tools import KafkaTools
from tidelog.node.api.dispatch import routes

pytestmark = pytest.mark.slow

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def java(cluster: Running) -> Iterator[KafkaTools]:
    with KafkaTools(cluster.bootstrap) as tools:
        yield tools


def rows_of(text: str) -> list[dict[str, str]]:
    """kafka-topics --describe: `Name: value` with tabs between, a line for each row."""
    return [
        {name: value for field in line.split("\t") if field for name, value in [_pair(field)]}
        for line in text.splitlines()
    ]


def _pair(field: str) -> tuple[str, str]:
    name, _, value = field.partition(":")
    return name, value.strip()


def test_kafka_topics_creates_alters_describes_lists_and_deletes(
    cluster: Running, java: KafkaTools
) -> None:
    topic = fresh_topic("tools")
    said = java.tool(
        TOPICS,
        *("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000"),
    )
    assert said.strip() == f"Created topic {topic}."
    java.tool(TOPICS, "--alter", "--topic", topic, "--partitions", "5")

    head, *partitions = rows_of(java.tool(TOPICS, "--describe", "--topic", topic))
    assert (head["Topic"], head["PartitionCount"], head["ReplicationFactor"]) == (topic, "5", "1")
    assert head["Configs"] == "retention.ms=3600000"
    assert re.fullmatch(r"[A-Za-z0-9_][\w-]{21}", head["TopicId"])
    assert [row["Partition"] for row in partitions] == ["0", "1", "2", "3", "4"]
    for row in partitions:
        assert (row["Leader"], row["Replicas"], row["Isr"]) == ("0", "0", "0")
        assert (row["Elr"], row["LastKnownElr"]) == ("", "")

    assert topic in java.tool(TOPICS, "--list").split()
    java.tool(TOPICS, "--delete", "--topic", topic)
    assert Confluent(cluster.bootstrap).partitions(topic) == 0


def test_offsets_deleted_records_and_sizes_agree(
    cluster: Running, java: KafkaTools, tmp_path: Path
) -> None:
    client = Confluent(cluster.bootstrap)
    topic = fresh_topic("tools")
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(b"x" * 100, timestamp_ms=now_ms())] * 30, partition=0)
    client.produce(topic, [Record(b"y" * 100, timestamp_ms=now_ms())] * 7, partition=1)

    latest = java.tool(GET_OFFSETS, "--topic", topic)
    assert latest.split() == [f"{topic}:0:30", f"{topic}:1:7"]

    asked = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": 0, "offset": 12},
            {"topic": topic, "partition": 1, "offset": -1},
        ],
    }
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps(asked))
    said = java.tool(DELETE_RECORDS, "--offset-json-file", str(wanted))
    assert sorted(re.findall(r"partition: (\S+)\tlow_watermark: (\d+)", said)) == [
        (f"{topic}-0", "12"),
        (f"{topic}-1", "7"),
    ]
    earliest = java.tool(GET_OFFSETS, "--topic", topic, "--time", "earliest")
    assert earliest.split() == [f"{topic}:0:12", f"{topic}:1:7"]

    said = java.tool(LOG_DIRS, "--describe", "--topic-list", topic)
    (broker,) = json.loads(said.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (0, None)
    sizes = {row["partition"]: row["size"] for row in directory["partitions"]}
    folder = Path(directory["logDir"])
    assert sizes == {
        f"{topic}-{n}": sum(file.stat().st_size for file in folder.glob(f"{topic}-{n}/*.log"))
        for n in range(2)
    }
    assert all(sizes.values())


def test_kafka_configs_sets_shows_and_takes_back(cluster: Running, java: KafkaTools) -> None:
    topic = fresh_topic("tools")
    Confluent(cluster.bootstrap).create_topic(topic, configs={"retention.ms": "3600000"})
    said = java.tool(
        CONFIGS,
        *("--alter", "--topic", topic),
        *("--add-config", "cleanup.policy=[compact,delete],segment.ms=700000"),
        *("--delete-config", "retention.ms"),
    )
    assert said.strip() == f"Completed updating config for topic {topic}."

    said = java.tool(CONFIGS, "--describe", "--topic", topic)
    assert said.splitlines() == [
        f"Dynamic configs for topic {topic} are:",
        (
            "  cleanup.policy=compact,delete sensitive=false synonyms="
            "{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
            "DEFAULT_CONFIG:log.cleanup.policy=delete}"
        ),
        "  segment.ms=700000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=700000}",
    ]

    said = java.tool(CONFIGS, "--describe", "--broker", "0", "--all")
    assert said.splitlines()[0] == "All configs for broker 0 are:"
    assert "  log.retention.hours=168 sensitive=false synonyms=" in said


def test_kafka_configs_keeps_settings_of_groups_and_of_clients_metrics(java: KafkaTools) -> None:
    group, subscription = fresh_topic("group"), fresh_topic("metrics")
    said = java.tool(
        CONFIGS,
        *("--alter", "--group", group),
        *("--add-config", "consumer.session.timeout.ms=50000"),
    )
    # To describe one it lists the groups that there are: not yet here.
    assert said.strip() == f"Completed updating config for group {group}."
    java.tool(
        CONFIGS,
        *("--alter", "--client-metrics", subscription),
        *("--add-config", "interval.ms=2000,match=[client_id=a.*]"),
    )
    said = java.tool(CONFIGS, "--describe", "--entity-type", "client-metrics")
    assert f"client-metric {subscription} are:" in said
    assert "  interval.ms=2000 sensitive=false" in said
    assert "  match=client_id=a.* sensitive=false" in said


def test_kafka_broker_api_versions_lists_what_is_served(java: KafkaTools) -> None:
    said = java.tool(API_VERSIONS)
    assert re.match(r"127\.0\.0\.1:\d+ \(id: 0 rack: null isFenced: false\) -> \(\n", said)
    usable = re.findall(r"\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", said)
    told = [(int(key), int(low), int(high or low)) for key, low, high in usable]
    assert told == routes().advertised()
    assert "UNKNOWN" not in said
