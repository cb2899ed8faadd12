"""One Apache Kafka for all tests of a process that neither kill nor configure it."""

from collections.abc import Iterator

import pytest

from harness.kafka.node import TRANSACTIONS, kafka_node


@pytest.fixture(scope="session")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address: make topics and names of your own."""
    with kafka_node(tmp_path_factory.mktemp("kafka"), TRANSACTIONS) as bootstrap:
        yield bootstrap
