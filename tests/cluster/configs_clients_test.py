"""Settings and partitions as confluent-kafka's and kafka-python's admin clients ask for them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)

from harness.clients.confluent import Confluent
from harness.clients.facts import DEADLINE_S, Record, fresh_topic, now_ms
from harness.processes.cluster import Cluster, until

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as PythonResource

pytestmark = pytest.mark.slow


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def of_topic(name: str, **values: str) -> ConfigResource:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)


def done(futures: dict[Any, Any]) -> Any:
    """The one result, or the client's exception."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = done(
        admin.describe_configs([ConfigResource(kind, name)], request_timeout=DEADLINE_S)
    )
    return entries


def refused(ask: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        ask()
    error: KafkaError = caught.value.args[0]
    return error


# -- confluent-kafka ----------------------------------------------------------------------------


def test_confluent_reads_a_topics_settings_with_their_origins(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "3600000"})
    entries = described(admin, ResourceType.TOPIC, topic)
    assert len(entries) == 40
    own, inherited = entries["retention.ms"], entries["max.message.bytes"]
    assert own.value == "3600000"
    assert ConfigSource(own.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert (own.is_default, own.is_read_only, own.is_sensitive) == (False, False, False)
    assert (inherited.value, inherited.is_default) == ("1048588", True)
    assert set(inherited.synonyms) == {"message.max.bytes"}


def test_confluent_changes_single_entries_and_all(cluster: Cluster, admin: AdminClient) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "3600000"})
    done(admin.incremental_alter_configs([of_topic(topic, segment_ms="9000")]))
    entries = described(admin, ResourceType.TOPIC, topic)
    assert (entries["retention.ms"].value, entries["segment.ms"].value) == ("3600000", "9000")
    whole = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.messages": "7"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        done(admin.alter_configs([whole]))
    entries = described(admin, ResourceType.TOPIC, topic)
    assert entries["flush.messages"].value == "7"
    assert entries["segment.ms"].is_default


def test_confluent_is_told_why_settings_may_not_be(cluster: Cluster, admin: AdminClient) -> None:
    topic = cluster.create_topic()
    error = refused(
        lambda: done(admin.incremental_alter_configs([of_topic(topic, retention_m="1")]))
    )
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "did you mean 'retention.ms'?" in error.str()
    missing = fresh_topic()
    error = refused(lambda: described(admin, ResourceType.TOPIC, missing))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_reads_a_brokers_settings(admin: AdminClient) -> None:
    entries = described(admin, ResourceType.BROKER, "0")
    assert entries["broker.id"].value == "0"
    assert entries["num.partitions"].is_read_only
    assert not entries["log.retention.ms"].is_read_only
    assert entries["ssl.key.password"].is_sensitive
    assert len(entries) > 300


def test_confluent_adds_partitions_and_a_subscriber_finds_them(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = cluster.create_topic(partitions=2)
    error = refused(lambda: done(admin.create_partitions([NewPartitions(topic, 1)])))
    assert error.code() == KafkaError.INVALID_PARTITIONS
    done(admin.create_partitions([NewPartitions(topic, 5)], validate_only=True))
    client = Confluent(cluster.bootstrap)
    assert client.partitions(topic) == 2
    done(admin.create_partitions([NewPartitions(topic, 3)]))
    done(admin.create_partitions([NewPartitions(topic, 4, [[0]])]))
    assert client.partitions(topic) == 4
    client.produce(topic, [Record(b"v", timestamp_ms=now_ms())], partition=3)


def test_a_client_that_refreshes_its_metadata_sees_new_partitions(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = cluster.create_topic(partitions=1)
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "never-joined",
        "topic.metadata.refresh.interval.ms": "50",
    }
    consumer: Any = Consumer(settings)
    try:
        assert listed(consumer, topic) == 1
        done(admin.create_partitions([NewPartitions(topic, 2)]))
        until(lambda: listed(consumer, topic) == 2, "the client sees both partitions")
    finally:
        consumer.close()


def listed(consumer: Any, topic: str) -> int:
    return len(consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)


# -- kafka-python -------------------------------------------------------------------------------


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[Any]:
    client: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    with closing(client):
        yield client


def test_kafka_python_reads_and_changes_settings(cluster: Cluster, python_admin: Any) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "3600000"})
    python_admin.alter_configs([PythonResource("TOPIC", topic, {"segment.ms": "9000"})])
    found = python_admin.describe_configs([PythonResource("TOPIC", topic)])["topic"][topic]
    assert (found["retention.ms"]["value"], found["segment.ms"]["value"]) == ("3600000", "9000")
    whole = {"flush.messages": "7"}
    python_admin.alter_configs([PythonResource("TOPIC", topic, whole)], incremental=False)
    found = python_admin.describe_configs([PythonResource("TOPIC", topic)])["topic"][topic]
    assert found["flush.messages"]["value"] == "7"


def test_kafka_python_lists_resources_and_adds_partitions(
    cluster: Cluster, python_admin: Any
) -> None:
    topic = cluster.create_topic()
    python_admin.create_partitions({topic: 3})
    assert Confluent(cluster.bootstrap).partitions(topic) == 3
    listed = python_admin.list_config_resources(["TOPIC", "BROKER"])
    assert topic in listed["topic"]
    assert listed["broker"] == ["0"]
