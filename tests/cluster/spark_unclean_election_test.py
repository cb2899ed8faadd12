"""An unclean election under a reader: a replica that lacks acknowledged records leads, and the log
is shorter than what was planned, or than what was read of it already.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import until
from harness.processes.stage import TOPIC, Stage, staged
from harness.spark.plain import Place
from tidelog.kernel.ids import NO_LEADER, Offset, Partition
from tidelog.spark.loss import DataLossError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import Mode
from tidelog.spark.reading import read_range
from tidelog.spark.stream import Stream

pytestmark = pytest.mark.slow

A, B = range(2)
CONFIGS = ("min.insync.replicas=1", "unclean.leader.election.enable=true")
PLANNED = OffsetRange(TOPIC, Partition(0), Offset(0), Offset(100))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A, alone in sync, has the records 0 to 99; B, which is dead, has 0 to 59."""
    with staged(tmp_path, *CONFIGS, replicas=(A, B), idempotent=False) as found:
        for value in values(0, 60):
            found.sent(value)  # a batch of its own, so that readers have few of them ahead
        found.until_log(B, "0-59:0")
        found.kill(B)
        found.until_isr(A)
        for value in values(60, 100):
            found.sent(value)
        yield found


def elect_b(stage: Stage) -> None:
    """A dies, and B leads without the records 60 to 99."""
    stage.kill(A)
    until(lambda: stage.view().leader == NO_LEADER, "nobody leads")
    stage.start(B)
    stage.until_led(B)


def reading(place: Place, **given: str) -> Iterator[bytes]:
    """The values of the planned range, few at a time."""
    small = {"kafka_max_partition_fetch_bytes": "1", "tidelog_batchRows": "5"}
    options = place.source_options(
        Mode.STREAM, subscribe=TOPIC, tidelog_columns="value", **small, **given
    )
    for batch in read_range(PLANNED, options):
        yield from batch.column("value").to_pylist()


def values(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def taken(rows: Iterator[bytes], count: int) -> list[bytes]:
    return [next(rows) for _ in range(count)]


def test_an_unclean_election_in_mid_query_is_data_loss(stage: Stage) -> None:
    place = Place(stage.cluster.bootstrap)
    rows = reading(place)
    assert taken(rows, 10) == values(0, 10)
    elect_b(stage)
    with pytest.raises(DataLossError, match=r"the log ends at 60: .* unclean election"):
        list(rows)
    with pytest.raises(DataLossError, match="the log ends at 60"):
        list(reading(place))


def test_an_unclean_election_in_mid_query_leaves_the_rows_that_are_there(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    rows = reading(Place(stage.cluster.bootstrap), failOnDataLoss="false")
    assert taken(rows, 10) == values(0, 10)
    elect_b(stage)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert list(rows) == values(10, 60)
    assert f"data loss: {TOPIC}-0: wanted offset 100: the log ends at 60" in caplog.text


def test_a_stream_goes_on_after_an_unclean_election_where_loss_is_no_failure(stage: Stage) -> None:
    place = Place(stage.cluster.bootstrap)
    given = {"subscribe": TOPIC, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    options = place.source_options(Mode.STREAM, **given)
    stream = Stream(options, place.client)
    start = stream.initial()
    planned = stream.latest(start)
    assert planned == {TOPIC: {"0": 100}}
    elect_b(stage)
    (again,) = Stream(options, place.client).ranges(start, planned)
    assert rows_of(again, options) == values(0, 60)
    assert stream.latest(planned) == {TOPIC: {"0": 60}}
    stage.sent(*[b"new"] * 10)
    end = stream.latest({TOPIC: {"0": 60}})
    assert end == {TOPIC: {"0": 70}}
    (new,) = stream.ranges({TOPIC: {"0": 60}}, end)
    assert rows_of(new, options) == [b"new"] * 10


def rows_of(wanted: OffsetRange, options: Any) -> list[bytes]:
    batches = read_range(wanted, options)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_reader_that_is_beyond_where_the_log_was_cut_is_told_of_the_loss(stage: Stage) -> None:
    place = Place(stage.cluster.bootstrap)
    rows = reading(place)
    found = taken(rows, 70)
    elect_b(stage)
    with pytest.raises(DataLossError, match="wanted offset"):
        found += list(rows)
    assert found == values(0, len(found)), "nothing twice, nothing of another history"
