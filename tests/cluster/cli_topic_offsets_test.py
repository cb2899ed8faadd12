"""`topic offsets`, `topic empty`, `topic delete-records` and `wait isr` on a real cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow

STAMP_MS = 1_700_000_000_000


@pytest.fixture
def quay(tmp_path: Path) -> Iterator[Cluster]:
    """One topic of two partitions, ten records in each, a second apart."""
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
        with RawClient(cluster.bootstrap) as client:
            for at in range(10):
                for partition in (0, 1):
                    stamp = STAMP_MS + 1_000 * at
                    view = batch_of(b"x", timestamp=stamp)
                    produce(client, "orders", view, partition=partition)
        yield cluster


def test_offsets_by_word_and_by_time(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "topic offsets orders",
        "topic offsets orders --json",
        "topic offsets orders --time earliest",
        "topic offsets orders --time latest --json",
        "topic offsets orders --time max-timestamp --json",
        "topic offsets orders --time 2023-11-14T22:13:25 --json",
        "topic offsets orders compacted --time @2023-11-14T22:13:25.500",
        "topic offsets orders --time 2099-01-01 --json",
        "topic offsets orders --time -1h",
        "topic offsets order",
        "topic offsets orders --time soon",
        "topic offsets",
    )
    golden("cli_topic_offsets", text)


def test_records_are_deleted_from_the_front(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "topic delete-records orders --partition 0 --before-offset 4 --yes",
        "topic delete-records orders --partition 0 --before-offset 2 --yes --json",
        "topic delete-records orders --partition 0 --before-offset -2 --yes",
        "topic delete-records orders --partition 1 --before-offset @2023-11-14T22:13:25 --yes",
        "topic offsets orders",
        "topic delete-records orders --partition 1 --before-offset 11 --yes",
        "topic delete-records orders --partition 2 --before-offset 1 --yes",
        "topic delete-records orders --partition 1 --before-offset 6",
        "topic delete-records orders --partition 1 --before-offset 1:2 --yes",
        "topic delete-records orders --partition 1 --yes",
        "topic delete-records compacted --partition 0 --before-offset 0 --yes",
        "topic empty orders",
        "topic empty orders compacted --yes --json",
        "topic empty orders --yes",
        "topic empty orders --yes --json",
        "topic offsets orders",
        "consume orders -o start:end",
    )
    golden("cli_topic_offsets_deleted", text)
    assert quay.done("log", "verify", "--json").document["remarks"] == []


def test_waits_for_topics_and_clusters(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "wait isr orders",
        "wait isr orders compacted --json",
        "wait isr order",
        f"wait ready -b {quay.bootstrap}",
        f"wait ready -b {quay.bootstrap} --json",
        "wait ready -b 127.0.0.1:1 --timeout 0.1",
        "wait isr orders -b 127.0.0.1:1",
        "wait isr",
    )
    golden("cli_topic_offsets_wait", text.replace(quay.bootstrap, "BOOTSTRAP"))
