"""Kafka's own tools for those who run a cluster, from the published jars, against three brokers.

All calls go to one JVM and one cluster: a test leaves every broker running.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.facts import fresh_topic
from harness.clients.kafka_tools import KafkaTools
from harness.clients.tools_jvm import Said
from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(three: Cluster) -> Iterator["Tools"]:
    with Tools(three) as tools:
        yield tools


class Tools(KafkaTools):
    """A tool asks any broker: each of them has heard by then of what the last one was told."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.bootstrap)
        self._cluster = cluster

    def run(self, *words: str) -> Said:
        self._cluster.until_heard()
        return super().run(*words)


def rows(text: str) -> dict[tuple[str, int], dict[str, str]]:
    """The partitions of kafka-topics --describe, by topic and number."""
    found = {}
    for line in text.splitlines():
        if line.startswith("\t"):
            pairs = [field.partition(":") for field in line.split("\t") if field]
            row = {name: value.strip() for name, _, value in pairs}
            found[row["Topic"], int(row["Partition"])] = row
    return found


def described(tools: KafkaTools, *words: str) -> dict[tuple[str, int], dict[str, str]]:
    return rows(tools.tool(TOPICS, "--describe", *words))


def made(tools: KafkaTools, assignment: str) -> str:
    topic = fresh_topic("tools")
    tools.tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment)
    return topic


def kill(three: Cluster, broker: int) -> None:
    three.done("broker", "kill", str(broker))


def start(three: Cluster, broker: int) -> None:
    """Until it is in sync everywhere: the metadata is at rest for the next test."""
    three.done("broker", "start", str(broker))
    three.until_heard()
    topics = three.done("topic", "list", "--json").document["topics"]
    three.done("wait", "isr", *(one["name"] for one in topics))


def test_kafka_topics_places_replicas_by_hand_and_grows_and_deletes(tools: KafkaTools) -> None:
    topic = made(tools, "0:1:2,2:1:0")
    placed = [
        (row["Leader"], row["Replicas"]) for row in described(tools, "--topic", topic).values()
    ]
    assert placed == [("0", "0,1,2"), ("2", "2,1,0")]
    words = ("--partitions", "3", "--replica-assignment", "0:1:2,2:1:0,1:0:2")
    tools.tool(TOPICS, "--alter", "--topic", topic, *words)
    assert described(tools, "--topic", topic)[topic, 2]["Replicas"] == "1,0,2"
    said = tools.refused(TOPICS, "--create", "--topic", f"{topic}-2", "--replica-assignment", "0:9")
    assert "INVALID_REPLICA_ASSIGNMENT" in said or "InvalidReplicaAssignmentException" in said
    tools.tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.tool(TOPICS, "--list").split()


def test_kafka_topics_finds_what_lacks_replicas_and_elections_mend_it(
    three: Cluster, tools: KafkaTools, tmp_path: Path
) -> None:
    topic, alone = made(tools, "0:1:2,2:1:0,1:2:0"), made(tools, "2")
    tools.tool(CONFIGS, "--alter", "--topic", topic, "--add-config", "min.insync.replicas=2")
    assert described(tools, "--under-replicated-partitions") == {}
    kill(three, 2)
    until(lambda: not described(tools, "--topic", topic)[topic, 0]["Isr"].count("2"), "it is out")

    under = described(tools, "--under-replicated-partitions", "--topic", topic)
    assert {place: row["Isr"] for place, row in under.items()} == {
        (topic, 0): "0,1",
        (topic, 1): "1,0",
        (topic, 2): "1,0",
    }
    assert described(tools, "--at-min-isr-partitions", "--topic", topic).keys() == under.keys()
    assert described(tools, "--under-min-isr-partitions", "--topic", topic) == {}
    down = described(tools, "--unavailable-partitions")
    assert {place: (row["Leader"], row["Elr"]) for place, row in down.items()} == {
        (alone, 0): ("none", "2")
    }

    start(three, 2)
    assert described(tools, "--unavailable-partitions") == {}
    assert described(tools, "--topic", topic)[topic, 1]["Leader"] == "1"
    wanted = tmp_path / "elect.json"
    named = [{"topic": topic, "partition": partition} for partition in (0, 1)]
    wanted.write_text(json.dumps({"partitions": named}))
    said = tools.tool(ELECTION, "--election-type", "preferred", "--path-to-json-file", str(wanted))
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-1" in said
    assert f"Valid replica already elected for partitions {topic}-0" in said
    assert described(tools, "--topic", topic)[topic, 1]["Leader"] == "2"
    again = ("--topic", topic, "--partition", "1")
    said = tools.tool(ELECTION, "--election-type", "preferred", *again)
    assert said.strip() == f"Valid replica already elected for partitions {topic}-1"
    assert tools.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions") == ""


def test_kafka_leader_election_makes_an_unclean_leader_and_no_other_kind(
    three: Cluster, tools: KafkaTools
) -> None:
    topic = made(tools, "1:2")
    kill(three, 2)
    until(lambda: described(tools, "--topic", topic)[topic, 0]["Isr"] == "1", "2 is out")
    three.done("produce", topic, text="only broker 1 has it\n")
    kill(three, 1)
    three.done("broker", "start", "2")
    until(lambda: described(tools, "--topic", topic)[topic, 0]["Leader"] == "none", "nobody leads")
    place = ("--topic", topic, "--partition", "0")
    said = tools.refused(ELECTION, "--election-type", "preferred", *place)
    assert "PreferredLeaderNotAvailableException" in said or "could not be completed" in said
    said = tools.tool(ELECTION, "--election-type", "unclean", *place)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in said
    row = described(tools, "--topic", topic)[topic, 0]
    assert (row["Leader"], row["Isr"]) == ("2", "2")
    start(three, 1)


def test_kafka_metadata_quorum_shows_the_coordinator_and_who_follows_it(tools: KafkaTools) -> None:
    said = tools.tool(QUORUM, "describe", "--status")
    status = dict(re.findall(r"^(\w+): +(.*)$", said, re.MULTILINE))
    assert (status["LeaderId"], status["MaxFollowerLag"]) == ("3000", "0")
    assert json.loads(status["CurrentVoters"]) == [{"id": 3000}]
    observers = json.loads(status["CurrentObservers"])
    assert [one["id"] for one in observers] == [0, 1, 2]
    head, *replicas = (
        line.split() for line in tools.tool(QUORUM, "describe", "--replication").splitlines()
    )
    assert head[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    end = status["HighWatermark"]
    assert [(row[0], row[2], row[3], row[-1]) for row in replicas] == [
        ("3000", end, "0", "Leader"),
        *((str(broker), end, "0", "Observer") for broker in range(3)),
    ]
    ages = tools.tool(QUORUM, "describe", "--replication", "--human-readable")
    assert ages.count(" ms ago") == 8


def test_kafka_features_describes_and_goes_only_where_the_cluster_can(tools: KafkaTools) -> None:
    said = tools.tool(FEATURES, "describe")
    assert re.fullmatch(
        r"Feature: group\.version\s+SupportedMinVersion: 1\s+SupportedMaxVersion: 1\s+"
        r"FinalizedVersionLevel: 1\s+Epoch: \d+\s+Feature: metadata\.version\s+"
        r"SupportedMinVersion: 3\.3-IV3\s+SupportedMaxVersion: "
        r"4\.1-IV1\s+FinalizedVersionLevel: 4\.1-IV1\s+Epoch: \d+\s+"
        r"Feature: transaction\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+"
        r"FinalizedVersionLevel: 2\s+Epoch: \d+\s*",
        said,
    )
    said = tools.tool(FEATURES, "upgrade", "--feature", "metadata.version=27")
    assert said.strip() == "metadata.version was upgraded to 27."
    said = tools.refused(FEATURES, "upgrade", "--feature", "metadata.version=28")
    assert "This cluster only supports versions 7-27." in said
    said = tools.refused(FEATURES, "downgrade", "--feature", "metadata.version=26")
    assert "Refusing to perform the requested downgrade" in said


def test_kafka_cluster_names_it_lists_its_brokers_and_forgets_one(
    three: Cluster, tools: KafkaTools
) -> None:
    topic = made(tools, "0:1:2")
    said = tools.verb(CLUSTER, "cluster-id")
    assert said.strip() == f"Cluster ID: {three.status()['cluster_id']}"
    assert endpoints(tools) == dict.fromkeys(range(3), "unfenced")

    kill(three, 2)
    until(lambda: endpoints(tools, "--include-fenced-brokers")[2] == "fenced", "2 is fenced")
    said = tools.verb(CLUSTER, "unregister", "--id", "2")
    assert said.strip() == "Broker 2 is no longer registered."
    assert endpoints(tools, "--include-fenced-brokers").keys() == {0, 1}
    row = described(tools, "--topic", topic)[topic, 0]
    assert (row["Replicas"], row["Isr"]) == ("0,1,2", "0,1")
    unknown = tools.run(CLUSTER, "unregister", "--bootstrap-server", three.bootstrap, "--id", "2")
    assert unknown.code == 1
    assert "BrokerIdNotRegisteredException: Broker ID 2 is not" in unknown.err

    start(three, 2)
    assert endpoints(tools) == dict.fromkeys(range(3), "unfenced")
    tools.verb(CLUSTER, "unregister", "--id", "1")  # it lives, and registers anew
    until(lambda: endpoints(tools).get(1) == "unfenced", "1 is back")
    three.done("wait", "isr", topic)


def endpoints(tools: KafkaTools, *words: str) -> dict[int, str]:
    """The state of each broker that is listed."""
    said = tools.verb(CLUSTER, "list-endpoints", *words)
    lines = [line.split() for line in said.splitlines()[1:]]
    return {int(row[0]): row[4] for row in lines if row}


def test_kafka_configs_sets_what_all_brokers_have(tools: KafkaTools) -> None:
    words = ("--entity-type", "brokers", "--entity-default")
    tools.tool(CONFIGS, "--alter", *words, "--add-config", "log.retention.ms=7200000")
    said = tools.tool(CONFIGS, "--describe", *words)
    assert "  log.retention.ms=7200000 sensitive=false" in said
    said = tools.tool(CONFIGS, "--describe", "--broker", "2", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in said
    tools.tool(CONFIGS, "--alter", *words, "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in tools.tool(CONFIGS, "--describe", *words)


def test_kafka_broker_api_versions_asks_each_broker(tools: KafkaTools) -> None:
    brokers = re.findall(
        r"\(id: (\d+) rack: null isFenced: false\) -> \(", tools.tool(API_VERSIONS)
    )
    assert sorted(brokers) == ["0", "1", "2"]
