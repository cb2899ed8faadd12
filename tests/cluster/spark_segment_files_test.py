"""The segment files of a real cluster are rows, while it runs and when it is stopped."""

import pytest

from harness.processes.cluster import Cluster
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition
from tidelog.spark.arrow import Columns
from tidelog.spark.segments import SegmentReader, Span, bounds

pytestmark = pytest.mark.slow

PARTITION = ("rows", Partition(0))
COLUMNS = Columns.of(["offset", "value"])


def rows(cluster: Cluster, span: Span) -> list[tuple[int, bytes]]:
    return [
        (row["offset"], row["value"])
        for batch in SegmentReader([cluster.data], span, COLUMNS).batches()
        for row in batch.to_pylist()
    ]


def test_rows_are_read_while_the_cluster_runs_and_when_it_is_stopped(
    fresh_cluster: Cluster,
) -> None:
    fresh_cluster.create_topic("rows")
    lines = [b"%d" % number for number in range(1_000)]
    text = "".join(f"{line.decode()}\n" for line in lines)
    fresh_cluster.done("produce", "rows", "--compression", "lz4", text=text)
    expected = list(enumerate(lines))
    assert rows(fresh_cluster, Span(PARTITION, 0, 1_000, leader=0)) == expected
    fresh_cluster.stop()
    committed = Isolation.READ_COMMITTED
    assert bounds([fresh_cluster.data], PARTITION, committed) == (0, 1_000)
    assert rows(fresh_cluster, Span(PARTITION, 500, 1_000, committed)) == expected[500:]
