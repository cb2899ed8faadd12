"""The administration calls of published clients, on a topic with known content."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from harness.clients import kafka_python
from harness.clients.confluent import Confluent
from harness.clients.facts import DEADLINE_S, OFFSET_OUT_OF_RANGE, Record, Refused, fresh_topic
from harness.clients.programs import Franz
from harness.processes.cluster import Cluster
from harness.suite.need import need
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

RECORDS = 30
FIRST_MS = 1_700_000_000_000
EARLIEST, LATEST, LARGEST = -2, -1, -3


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two partitions; thirty records in the first, a millisecond apart."""
    client = Confluent(cluster.bootstrap)
    name = fresh_topic("admin")
    client.create_topic(name, partitions=2)
    rows = [Record(b"x" * 100, timestamp_ms=FIRST_MS + n) for n in range(RECORDS)]
    client.produce(name, rows, partition=0)
    return name


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def log_folder(cluster: Cluster) -> Path:
    return cluster.data / "broker-0" / "log0"


def size_on_disk(cluster: Cluster, topic: str) -> int:
    files = log_folder(cluster).glob(f"{topic}-0/*.log")
    return sum(file.stat().st_size for file in files)


# -- confluent-kafka


def test_confluent_describes_the_cluster_and_a_topic(
    cluster: Cluster, topic: str, admin: AdminClient
) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    assert found.cluster_id == cluster.status()["cluster_id"]
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [cluster.bootstrap]
    assert found.controller.id == 0
    assert {one.name for one in found.authorized_operations} == {
        *("CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
        *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
    }
    future = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    described = future[topic].result(DEADLINE_S)
    assert [(row.id, row.leader.id, len(row.isr)) for row in described.partitions] == [
        (0, 0, 1),
        (1, 0, 1),
    ]
    assert len(described.authorized_operations) == 8


def test_confluent_lists_offsets_before_and_after_it_deleted_records(
    topic: str, admin: AdminClient
) -> None:
    def offset(timestamp: int) -> int:
        spec = OffsetSpec(timestamp)  # type: ignore[abstract]  # it gives one of its subclasses
        (future,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        return int(future.result(DEADLINE_S).offset)

    assert offset(EARLIEST) == 0
    assert offset(LATEST) == RECORDS
    assert offset(LARGEST) == RECORDS - 1
    assert offset(FIRST_MS + 20) == 20

    (future,) = admin.delete_records([TopicPartition(topic, 0, 12)]).values()
    assert future.result(DEADLINE_S).low_watermark == 12
    assert offset(EARLIEST) == 12
    assert offset(FIRST_MS) == 12

    (future,) = admin.delete_records([TopicPartition(topic, 0, RECORDS + 1)]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    assert refused.value.args[0].code() == OFFSET_OUT_OF_RANGE


def test_confluent_is_told_that_there_is_no_authorizer(admin: AdminClient) -> None:
    wanted = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:somebody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (future,) = admin.create_acls([wanted]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    assert refused.value.args[0].code() == ErrorCode.SECURITY_DISABLED


# -- kafka-python


def test_kafka_python_describes_the_cluster_and_deletes_records(
    cluster: Cluster, topic: str
) -> None:
    client = kafka_python.KafkaPython(cluster.bootstrap)
    facts = client.describe(topic, 0)
    assert facts["cluster"] == cluster.status()["cluster_id"]
    assert (facts["partitions"], facts["broker"], facts["reassignments"]) == ([0, 1], 0, {})
    (directory,) = facts["log_dirs"]
    assert directory["log_dir"] == str(log_folder(cluster))
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    ((row,),) = [found["partitions"] for found in directory["topics"]]
    assert row["partition_size"] == size_on_disk(cluster, topic)

    assert client.delete_records(topic, 0, 7) == 7
    assert client.span(topic, 0) == (7, RECORDS)
    with pytest.raises(Refused) as refused:
        client.delete_records(topic, 0, RECORDS + 1)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


# -- franz-go


def test_franz_learns_all_of_a_partition_and_deletes_its_records(
    cluster: Cluster, topic: str
) -> None:
    need("go")
    client = Franz(cluster.bootstrap)
    facts = client.describe(topic, 0)
    assert facts.pop("cluster") == cluster.status()["cluster_id"]
    assert 0 < facts.pop("usable_bytes") <= facts.pop("total_bytes")
    assert "SECURITY_DISABLED" in facts.pop("acls")
    assert facts == {
        "brokers": [0],
        "size": size_on_disk(cluster, topic),
        "sequences": [RECORDS - 1],
        "epoch_end": RECORDS,
        "leader_epoch": 0,
        "reassignments": 0,
    }
    assert client.delete_records(topic, 0, 11) == 11
    assert client.span(topic, 0) == (11, RECORDS)
    with pytest.raises(Refused) as refused:
        client.delete_records(topic, 0, RECORDS + 1)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
