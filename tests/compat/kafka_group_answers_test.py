"""The same conversations with group coordinators of Apache Kafka and of ours: the same answers."""

from collections.abc import Iterator

import pytest

from harness.kafka.group_questions import CONVERSATIONS
from harness.kafka.group_talk import Talk
from harness.kafka.node import kafka_node
from harness.processes.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAME = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka"), SAME) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Cluster(tmp_path_factory.mktemp("ours"), brokers=1, settings=SAME) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_group_coordinator_answers_as_kafka_s_does(kafka: str, ours: str, name: str) -> None:
    theirs, found = (told(bootstrap, name) for bootstrap in (kafka, ours))
    assert found == theirs


def told(bootstrap: str, name: str) -> dict[str, object]:
    talk = Talk(bootstrap)
    try:
        return dict(CONVERSATIONS[name](talk))
    finally:
        talk.close()
