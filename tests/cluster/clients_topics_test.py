"""Each client creates and deletes topics, and is told why where it may not."""

import time

import pytest

from harness.clients.everyone import WRITERS, writer
from harness.clients.facts import (
    DEADLINE_S,
    INVALID_CONFIG,
    INVALID_TOPIC,
    TOPIC_EXISTS,
    Position,
    Record,
    Refused,
    Running,
    Writer,
    fresh_topic,
    now_ms,
)

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", WRITERS)]


def test_a_created_topic_has_its_partitions_and_exists_once(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()

    client.create_topic(topic, partitions=3, configs={"retention.ms": "3600000"})

    assert client.partitions(topic) == 3
    with pytest.raises(Refused) as refused:
        client.create_topic(topic, partitions=3)
    assert refused.value.code == TOPIC_EXISTS


@pytest.mark.parametrize(
    ("topic", "configs", "code"),
    [
        ("no spaces", {}, INVALID_TOPIC),
        (fresh_topic(), {"retention.ms": "soon"}, INVALID_CONFIG),
    ],
    ids=["name", "config"],
)
def test_a_topic_that_cannot_be_is_refused_with_its_code(
    cluster: Running, name: str, topic: str, configs: dict[str, str], code: int
) -> None:
    client = writer(name, cluster.bootstrap)

    with pytest.raises(Refused) as refused:
        client.create_topic(topic, configs=configs)

    assert refused.value.code == code
    assert client.partitions(topic) == 0


def test_a_deleted_topic_is_gone_and_its_name_begins_anew(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    record = Record(b"of the first life", timestamp_ms=now_ms())
    client.create_topic(topic, partitions=2)
    assert client.produce(topic, [record] * 3, partition=1)[-1] == Position(1, 2)

    client.delete_topic(topic)
    _wait_until_gone(client, topic)
    client.create_topic(topic)

    assert client.partitions(topic) == 1
    assert client.produce(topic, [record]) == [Position(0, 0)]


def test_producing_to_a_new_name_creates_the_topic(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic("automatic")

    positions = client.produce(topic, [Record(b"first", timestamp_ms=now_ms())])

    assert positions == [Position(0, 0)]
    assert client.partitions(topic) >= 1


def _wait_until_gone(client: Writer, topic: str) -> None:
    """The answer to a deletion may come before the last broker has forgotten the topic."""
    deadline = time.monotonic() + DEADLINE_S
    while client.partitions(topic):
        assert time.monotonic() < deadline
        time.sleep(0.1)
