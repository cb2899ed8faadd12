"""The markers of an exactly-once sink, as they are kept beside its offsets."""

import json

import pytest

from tidelog.clients.admin.group_offsets import CommittedOffset
from tidelog.kernel.ids import Epoch, Offset
from tidelog.spark.sink_markers import (
    Ending,
    PartMarker,
    Rows,
    SinkMarker,
    part_marker,
    part_metadata,
    sink_marker,
    sink_metadata,
)
from tidelog.spark.tasks import Total

TOTAL = Total(5, (1 << 64) - 1)


def kept(offset: int, metadata: str) -> CommittedOffset:
    return CommittedOffset(Offset(offset), Epoch(-1), metadata)


def test_what_a_part_keeps_is_read_as_it_was_written() -> None:
    found = part_marker(kept(4, part_metadata("q", TOTAL)))
    assert found == PartMarker(4, "q", TOTAL)
    assert not found.is_old


@pytest.mark.parametrize("last", [None, Rows(2, TOTAL), Rows(2, Total(0, 0), "digest")])
@pytest.mark.parametrize("ending", [None, Ending(Rows(3, TOTAL, "d"), 8)])
@pytest.mark.parametrize(("is_whole", "renewed_ms"), [(False, None), (True, 0), (False, 1 << 41)])
def test_what_a_sink_keeps_is_read_as_it_was_written(
    last: Rows | None, ending: Ending | None, renewed_ms: int | None, *, is_whole: bool
) -> None:
    marker = SinkMarker(3, "q", 9, last, ending, is_whole, renewed_ms=renewed_ms)
    assert sink_marker(kept(3, sink_metadata(marker))) == marker


def test_the_metadata_of_a_sink_is_small() -> None:
    """Brokers take at most offset.metadata.max.bytes, 4096 unless they are told otherwise."""
    rows = Rows(1 << 40, Total(1 << 40, TOTAL.sum), "f" * 32)
    marker = SinkMarker(1 << 40, "q" * 200, 10_000, rows, Ending(rows, 10_000), renewed_ms=1 << 50)
    assert len(sink_metadata(marker)) < 1_000


def test_markers_of_earlier_versions_are_understood() -> None:
    part = part_marker(kept(4, json.dumps({"query": "q", "rows": 5})))
    assert part == PartMarker(4, "q", Total(5, None))
    assert part.is_old
    parts = sink_marker(kept(4, json.dumps({"parts": 3})))
    assert parts == SinkMarker(4, None, 3, is_old=True)
    # Of a micro-batch in one transaction; it named the sink in place of the query.
    whole = sink_marker(kept(4, json.dumps({"query": "the-sink", "rows": 5})))
    assert whole == SinkMarker(4, None, 0, Rows(3, Total(5, None)), is_whole=True, is_old=True)


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "x", "[]", "{}", "7", "[" * 4_000),
        '{"v": 2}',
        '{"v": 3, "query": "q", "parts": 1, "rows": 1}',
        '{"v": 2, "query": "q", "parts": 1, "ending": 5}',
        '{"v": 2, "query": "q", "parts": 1, "ending": "x"}',
        '{"v": 2, "query": "q", "parts": 1e400}',
        '{"v": 2, "query": "q", "parts": 1, "renewed": "x"}',
        '{"rows": "many"}',
        '{"query": "q", "rows": 1e400}',
        '{"query": "q", "rows": 1, "sum": 7}',
    ],
)
def test_metadata_that_no_release_has_written_is_foreign(metadata: str) -> None:
    part, sink = part_marker(kept(4, metadata)), sink_marker(kept(4, metadata))
    assert sink == SinkMarker(4, is_foreign=True)
    if '"v": 3' not in metadata:
        assert part == PartMarker(4, is_foreign=True)


def test_without_an_offset_there_is_no_marker() -> None:
    assert part_marker(None) is None
    assert sink_marker(None) is None


def test_a_total_without_fingerprint_is_compared_by_its_rows() -> None:
    assert Total(5, None).is_same(TOTAL)
    assert TOTAL.is_same(Total(5, None))
    assert not Total(4, None).is_same(TOTAL)
    assert not Total(5, 7).is_same(TOTAL)
