"""The fingerprint of rows: one for the same rows, however they come; another for any change."""

from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.spark.columns import HEADER_TYPE
from tidelog.spark.fingerprint import Fingerprint
from tidelog.spark.rows import WRITTEN
from tidelog.spark.tasks import Total

SIZES = st.sampled_from([0, 1, 2, 7, 8, 9, 15, 16, 17, 40, 2047, 2048, 2049, 5000])
CELLS = st.binary(max_size=20) | st.builds(
    lambda size, one: one * size, SIZES, st.binary(min_size=1, max_size=1)
)
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=9)}),
    max_size=3,
)
ROWS = st.fixed_dictionaries(
    {
        "key": st.none() | CELLS,
        "value": st.none() | CELLS,
        "topic": st.none() | st.sampled_from(["a", "b", "ab"]),
        "partition": st.none() | st.integers(-1, 3),
        "headers": st.none() | HEADERS,
        "timestamp": st.none() | st.integers(-2, 2) | st.integers(0, 1 << 41),
    }
)
Row = dict[str, Any]


def batch_of(rows: list[Row]) -> Any:
    arrays = {name: pa.array([row[name] for row in rows], kind) for name, kind in WRITTEN.items()}
    return pa.RecordBatch.from_pydict(arrays)


def total_of(*batches: Any) -> Total:
    prints = Fingerprint()
    for one in batches:
        prints.add(one)
    return prints.total


def plain(row: Row) -> Row:
    """As it is written: no headers are as many as none."""
    return {**row, "headers": row["headers"] or None}


@given(st.lists(ROWS, max_size=12), st.randoms(use_true_random=False), st.integers(0, 12))
def test_neither_order_nor_batches_matter(rows: list[Row], draw: Any, cut: int) -> None:
    shuffled = draw.sample(rows, len(rows))
    whole = batch_of(rows)
    assert total_of(whole) == total_of(batch_of(shuffled[:cut]), batch_of(shuffled[cut:]))
    assert total_of(whole) == total_of(whole.slice(0, cut), whole.slice(cut))


@given(st.lists(ROWS, min_size=1, max_size=5), st.data())
def test_any_change_of_one_row_is_seen(rows: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(WRITTEN)))
    changed = {**rows[at], name: data.draw(ROWS)[name]}
    assume(plain(changed) != plain(rows[at]))
    others = [*rows[:at], changed, *rows[at + 1 :]]
    assert total_of(batch_of(rows)) != total_of(batch_of(others))


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_a_lost_and_a_doubled_row_are_seen(rows: list[Row]) -> None:
    known = total_of(batch_of(rows))
    assert total_of(batch_of(rows[1:])) != known
    assert total_of(batch_of([*rows, rows[0]])) != known
    assert total_of(batch_of([*rows[1:], rows[-1]])) != known or plain(rows[0]) == plain(rows[-1])


@given(CELLS, CELLS)
def test_what_goes_to_another_column_or_cell_is_seen(one: bytes, other: bytes) -> None:
    empty = dict.fromkeys(WRITTEN)
    rows = [
        {**empty, "key": one, "value": other},
        {**empty, "key": other, "value": one},
        {**empty, "key": one + other, "value": b""},
        {**empty, "key": one + other},
        {**empty, "value": one + other},
        {**empty, "headers": [{"key": "n", "value": one}, {"key": "n", "value": other}]},
        {**empty, "headers": [{"key": "n", "value": other}, {"key": "n", "value": one}]},
        {**empty, "headers": [{"key": "n", "value": one + other}]},
    ]
    totals = [total_of(batch_of([row])) for row in rows]
    for number, row in enumerate(rows):
        assert [totals[number] == one for one in totals] == [row == one for one in rows]


def test_cells_that_change_partners_are_seen() -> None:
    empty = dict.fromkeys(WRITTEN)
    pairs = [(b"a", b"x"), (b"b", b"y")]
    crossed = [(b"a", b"y"), (b"b", b"x")]
    known, other = (
        total_of(batch_of([{**empty, "key": key, "value": value} for key, value in one]))
        for one in (pairs, crossed)
    )
    assert known.rows == other.rows
    assert known.sum != other.sum


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_the_topic_of_the_option_counts_as_that_of_each_row(rows: list[Row]) -> None:
    def total(topic: str | None, rows: list[Row]) -> Total:
        prints = Fingerprint(topic)
        prints.add(batch_of(rows))
        return prints.total

    assert total("a", rows) == total(None, [{**row, "topic": "a"} for row in rows])
    assert total("a", rows) != total("b", rows)


@given(st.lists(ROWS, max_size=5))
def test_a_column_that_is_missing_counts_as_one_of_nulls(rows: list[Row]) -> None:
    bare = [{**row, "key": None, "headers": None} for row in rows]
    whole = batch_of(bare)
    assert total_of(whole) == total_of(whole.select(["value", "topic", "partition", "timestamp"]))


def test_many_rows_are_taken_piece_by_piece() -> None:
    values = [b"%d" % n * (n % 40) for n in range(20_000)]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    parts = [batch.slice(at, 1_000) for at in range(0, 20_000, 1_000)]
    assert total_of(batch) == total_of(*reversed(parts))
    large = pa.RecordBatch.from_pydict({"value": pa.array([bytes(3_000_000)] * 3, pa.binary())})
    assert total_of(large) == total_of(*(large.slice(at, 1) for at in range(3)))


def test_the_headers_type_is_that_of_the_column() -> None:
    assert WRITTEN["headers"] == HEADER_TYPE


def test_a_known_fingerprint_stays_the_same_from_release_to_release() -> None:
    """Markers keep it: a query that is upgraded must find its own rows again."""
    row = {
        "key": b"k",
        "value": b"a value of more than sixteen bytes",
        "topic": "t",
        "partition": 1,
        "headers": [{"key": "n", "value": None}],
        "timestamp": 1_700_000_000_000,
    }
    known = Total(2, 18407493775073657298)
    assert total_of(batch_of([row, dict.fromkeys(WRITTEN)])) == known
