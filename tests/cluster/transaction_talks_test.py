"""Transactions word by word: our brokers say what Apache Kafka says, in answers and in logs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clients.confluent import Confluent
from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.kafka.transaction_talk import Talk
from harness.kafka.transaction_talks import LONG_TALKS, TALKS, held
from harness.processes.cluster import Cluster
from harness.processes.golden import Golden

pytestmark = pytest.mark.slow

SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


def text_of(bootstrap: str, talks: tuple[Callable[[Talk], None], ...]) -> str:
    make = Confluent(bootstrap).create_topic
    return "\n".join(held(bootstrap, talk, make) for talk in talks)


def test_our_brokers_say_what_kafka_has_said(
    tmp_path: Path, golden: Golden, *, nightly: bool
) -> None:
    """To use epochs up takes 65,000 requests: at night only."""
    with Cluster(tmp_path, brokers=3) as cluster:
        text = text_of(cluster.bootstrap, TALKS)
        long = text_of(cluster.bootstrap, LONG_TALKS) if nightly else ""
    golden("transaction_talks", text)
    if nightly:
        golden("transaction_talks_long", long)


@pytest.mark.timeout(300)
def test_kafka_still_says_so(tmp_path: Path, golden: Golden, *, nightly: bool) -> None:
    if not nightly:
        pytest.skip("Apache Kafka is started with --nightly only")
    with kafka_node(tmp_path, {**TRANSACTIONS, **SOON}) as bootstrap:
        golden("transaction_talks", text_of(bootstrap, TALKS))
        golden("transaction_talks_long", text_of(bootstrap, LONG_TALKS))
