"""Which columns are taken as what, and how rows are cut into batches."""

import pyarrow as pa
import pytest

from tidelog.clients.producer.partitioner import partition_of_key
from tidelog.spark.arrow import SEQUENCES, Encoder, partitions_of
from tidelog.wire.records import Origin, Record, iterate_records, read_header

NOW_MS = 1_700_000_000_000


def encoded(table: pa.RecordBatch, batch_bytes: int = 1_000) -> list[Record]:
    found = Encoder(batch_bytes=batch_bytes).encode(table, now_ms=NOW_MS)
    return [record for one in found for record in iterate_records(memoryview(one.batch))]


def test_a_value_alone_is_enough_and_has_the_time_of_now() -> None:
    assert encoded(pa.RecordBatch.from_pydict({"value": ["täglich", None]})) == [
        Record(0, NOW_MS, None, "täglich".encode()),
        Record(1, NOW_MS, None, None),
    ]


def test_rows_without_a_time_of_their_own_get_that_of_now() -> None:
    times = pa.array([1_500_999, None], pa.timestamp("us", "UTC"))
    table = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "timestamp": times})
    assert [record.timestamp for record in encoded(table)] == [1_500, NOW_MS]


def test_columns_of_the_source_that_a_record_does_not_hold_are_left_alone() -> None:
    table = pa.RecordBatch.from_pydict({"topic": ["t"], "offset": [5], "value": [b"a"]})
    assert encoded(table) == [Record(0, NOW_MS, None, b"a")]


def test_a_header_without_a_name_is_refused() -> None:
    table = pa.RecordBatch.from_pydict(
        {"value": [b"a"], "headers": [[{"key": None, "value": b"x"}]]}
    )
    with pytest.raises(ValueError, match="header has no name"):
        encoded(table)


def test_no_rows_are_no_batches() -> None:
    assert encoded(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})) == []


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    table = pa.RecordBatch.from_pydict({"value": [b"a", b"b" * 2_000, b"c", b"d"]})
    found = Encoder(batch_bytes=1_000).encode(table, now_ms=NOW_MS)
    assert [one.rows for one in found] == [1, 1, 2]


def test_more_rows_than_are_written_at_once_are_one_producers_in_order() -> None:
    count = 70_000
    table = pa.RecordBatch.from_pydict({"value": pa.array(range(count)).cast(pa.string())})
    origin = Origin(1, 0, SEQUENCES - 100)
    found = Encoder(batch_bytes=100_000).encode(table, now_ms=NOW_MS, origin=origin)
    sequences = [read_header(one.batch).base_sequence for one in found]
    rows = [one.rows for one in found]
    assert sum(rows) == count
    assert sequences == [(SEQUENCES - 100 + sum(rows[:at])) % SEQUENCES for at in range(len(rows))]
    last = list(iterate_records(memoryview(found[-1].batch)))[-1]
    assert last.value == b"69999"


def test_a_batch_may_have_so_many_rows_that_their_offsets_take_three_bytes() -> None:
    values = [b"%d" % row for row in range(9_000)]
    table = pa.RecordBatch.from_pydict({"value": values})
    found = encoded(table, batch_bytes=10**6)
    assert [(row.offset, row.value) for row in found] == list(enumerate(values))


def test_keys_of_every_length_go_where_every_client_sends_them() -> None:
    keys = [bytes(range(250)) * 3][:1] + [bytes(range(size)) for size in range(20)]
    column = pa.array(keys, pa.binary())
    assert partitions_of(column, 7).tolist() == [partition_of_key(key, 7) for key in keys]
