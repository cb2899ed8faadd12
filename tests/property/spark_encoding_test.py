"""What is encoded by the column, the plain reader reads, and a broker takes."""

from itertools import chain

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.logs.drawn_batches import NOW_MS, fields, records
from tidelog.clients.producer.partitioner import partition_of_key
from tidelog.kernel.limits import MIB
from tidelog.node.log.settings import LONG_MAX, LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.spark.arrow import NO_KEY, SEQUENCES, Encoder, partitions_of, split_by_partition
from tidelog.spark.columns import TYPES, Column
from tidelog.wire.codecs import Codec
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin, Record, iterate_records

RULES = rules_of(LogSettings(max_message_bytes=64 * MIB, timestamp_after_max_ms=LONG_MAX))
PRODUCERS = st.sampled_from(
    (Origin(), Origin(5, 1, 0), Origin(5, 1, SEQUENCES - 2, TRANSACTIONAL_BIT))
)
drawn_rows = st.lists(records(0), min_size=1, max_size=4).map(
    lambda lists: list(chain.from_iterable(lists))
)


def table_of(rows: list[Record]) -> pa.RecordBatch:
    schema = pa.schema(
        [
            (one.value, TYPES[one])
            for one in (Column.KEY, Column.VALUE, Column.TIMESTAMP, Column.HEADERS)
        ]
    )
    columns = [
        [row.key for row in rows],
        [row.value for row in rows],
        [row.timestamp * 1000 for row in rows],
        [[{"key": name, "value": value} for name, value in row.headers] or None for row in rows],
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@settings(max_examples=100)
@given(
    drawn_rows,
    st.sampled_from(Codec),
    PRODUCERS,
    st.sampled_from((70, 200, 20_000, MIB)),
    st.integers(0, 3),
)
def test_records_come_back_as_they_went_in(
    rows: list[Record], codec: Codec, origin: Origin, batch_bytes: int, skipped: int
) -> None:
    table, rows = table_of(rows).slice(skipped), rows[skipped:]
    encoded = Encoder(codec, batch_bytes=batch_bytes).encode(table, now_ms=0, origin=origin)
    found, sequence = [], origin.base_sequence
    for one in encoded:
        view = memoryview(one.batch)
        header = validate_produced(view, RULES, NOW_MS)
        assert header.record_count == one.rows
        assert (header.producer_id, header.base_sequence) == (origin.producer_id, sequence)
        sequence = (sequence + one.rows) % SEQUENCES if sequence >= 0 else -1
        of_batch = list(iterate_records(view))
        assert header.max_timestamp == max(record.timestamp for record in of_batch)
        assert [record.offset for record in of_batch] == list(range(one.rows))
        assert one.rows == 1 or codec is not Codec.NONE or len(view) <= batch_bytes
        found += of_batch
    assert [one[1:] for one in found] == [one[1:] for one in rows]


@settings(max_examples=50)
@given(st.lists(fields, min_size=1, max_size=20), st.integers(1, 300), st.integers(0, 3))
def test_a_key_goes_where_every_client_sends_it(
    keys: list[bytes | None], count: int, skipped: int
) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    expected = [NO_KEY if key is None else partition_of_key(key, count) for key in keys[skipped:]]
    assert partitions_of(column, count).tolist() == expected


@settings(max_examples=50)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_each_partition_has_its_rows_in_their_order(chosen: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"row": list(range(len(chosen)))})
    found = split_by_partition(rows, np.array(chosen, dtype=np.int32))
    assert {number: part.column("row").to_pylist() for number, part in found.items()} == {
        number: [row for row, one in enumerate(chosen) if one == number] for number in set(chosen)
    }
