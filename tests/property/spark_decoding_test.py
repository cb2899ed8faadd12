"""Columns hold what the plain reader of records reads, and no lie of a batch becomes a row."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.logs.drawn_batches import Drawn, stretches
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, Partition
from tidelog.spark import walk
from tidelog.spark.arrow import ALL, BadBatchError, Columns, Decoder
from tidelog.spark.decoder import MILLISECONDS_MAX
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.messages.k01_fetch import AbortedTransaction
from tidelog.wire.records import (
    HEADER_BYTES,
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    iterate_records,
    seal,
)

PARTITION = ("topic", Partition(3))
ALONE, TOGETHER = 10**6, 1
"""How many chains there must be before they are walked side by side."""

many, some = settings(max_examples=100), settings(max_examples=30)
"""Drawing a stretch takes longer than all that is asked of it."""


def rows_of(batches: Iterable[Any]) -> list[Record]:
    found: list[Record] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == ALL.schema()
        for row in batch.to_pylist():
            assert (row["topic"], row["partition"]) == PARTITION
            headers = tuple((one["key"], one["value"]) for one in row["headers"])
            stamp = round(row["timestamp"].timestamp() * 1000)
            found.append(Record(row["offset"], stamp, row["key"], row["value"], headers))
    return found


def plain_rows(
    data: bytes, aborted: Sequence[tuple[int, int]], first: int, end: int
) -> list[Record]:
    told = [AbortedTransaction(producer_id=who, first_offset=at) for who, at in aborted]
    fetched = Fetched(PARTITION, Offset(first), memoryview(data), told)
    return [record for record in fetched.records() if record.offset < end]


def decoded(
    data: bytes,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    first: int = 0,
    end: int = 2**62,
    side_by_side: int = ALONE,
    rows_per_batch: int = 3,
) -> list[Record]:
    isolation = Isolation.READ_COMMITTED if aborted else Isolation.READ_UNCOMMITTED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "_SIDE_BY_SIDE_MIN", side_by_side)
        decoder = Decoder(
            PARTITION,
            ALL,
            first=first,
            end=end,
            isolation=isolation,
            rows_per_batch=rows_per_batch,
        )
        found = decoder.feed(data, aborted)
    assert all(0 < batch.num_rows <= rows_per_batch for batch in found)
    return rows_of(found)


@many
@given(stretches(), st.sampled_from((ALONE, TOGETHER)), st.data())
def test_columns_hold_what_the_plain_reader_reads(
    drawn: Drawn, side_by_side: int, data: st.DataObject
) -> None:
    low = next(iterate_batches(memoryview(drawn.data)))[0].base_offset
    first = data.draw(st.integers(low, drawn.end))
    end = data.draw(st.integers(first, drawn.end + 1))
    found = decoded(drawn.data, drawn.aborted, first=first, end=end, side_by_side=side_by_side)
    assert found == plain_rows(drawn.data, drawn.aborted, first, end)


@some
@given(stretches(), st.lists(st.integers(1, 20_000), max_size=5))
def test_a_stretch_may_come_in_pieces_that_end_in_mid_batch(drawn: Drawn, sizes: list[int]) -> None:
    """Each piece goes on where the last whole batch ended, as fetches do."""
    decoder = Decoder(PARTITION, ALL, first=0, end=drawn.end)
    rest, rows = drawn.data, []
    for size in (*sizes, len(drawn.data)):
        piece = rest[:size]
        rows += rows_of(decoder.feed(piece))
        rest = rest[sum(one.size_bytes for one, _ in iterate_batches(memoryview(piece))) :]
    assert rows == plain_rows(drawn.data, (), 0, drawn.end)
    last = list(iterate_batches(memoryview(drawn.data)))[-1][0]
    assert decoder.next_offset == last.next_offset


@many
@given(stretches(), st.sampled_from((ALONE, TOGETHER)), st.data())
def test_a_batch_that_lies_is_an_error_or_reads_as_the_plain_reader_reads_it(
    drawn: Drawn, side_by_side: int, data: st.DataObject
) -> None:
    """Bytes are changed behind the header's own, and the CRC is made right again."""
    parts = [bytearray(part) for part in drawn.parts]
    part = data.draw(st.sampled_from(parts))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(part) - 1))
        part[at] = data.draw(st.sampled_from((0, 1, 2, 127, 128, 255)) | st.integers(0, 255))
    seal(part)
    agree(b"".join(parts), side_by_side)


@many
@given(stretches(), st.sampled_from((ALONE, TOGETHER)), st.data())
def test_a_header_that_lies_is_an_error_or_reads_as_the_plain_reader_reads_it(
    drawn: Drawn, side_by_side: int, data: st.DataObject
) -> None:
    """Any byte of the header that the CRC covers: codec, last offset, times, number of records."""
    parts = [bytearray(part) for part in drawn.parts]
    part = data.draw(st.sampled_from(parts))
    at = data.draw(st.sampled_from((21, 22, 23, 25, 26, 27, 34, 42, 57, 58, 59, 60)))
    part[at] = data.draw(st.integers(0, 255))
    seal(part)
    agree(b"".join(parts), side_by_side)


@pytest.mark.parametrize("side_by_side", [ALONE, TOGETHER])
def test_no_byte_of_a_small_batch_can_lie(side_by_side: int) -> None:
    """Every byte behind the header, with every value that is a step away from another meaning."""
    headers = (("", b"x"), ("b", None))
    rows = [Record(0, 5, b"k", None, headers), Record(1, 6, None, b"v"), Record(3, 5, b"", b"w")]
    plain = build_batch(rows)
    for at in range(HEADER_BYTES, len(plain)):
        for value in {0, 1, 2, 3, 4, 127, 128, 255, plain[at] + 1, plain[at] + 2, plain[at] - 2}:
            part = bytearray(plain)
            part[at] = value & 255
            seal(part)
            agree(bytes(part), side_by_side)


def agree(data: bytes, side_by_side: int) -> None:
    """What the plain reader refuses is refused; what it reads is read, unless offsets or times are
    such that no log has them.
    """
    try:
        expected = plain_rows(data, (), 0, 2**62)
        is_possible = offsets_grow(data) and times_fit(data)
    except (WireError, Rejected):
        is_possible = False
    if is_possible:
        assert decoded(data, side_by_side=side_by_side) == expected
    else:
        with pytest.raises(BadBatchError, match=r"topic 'topic' partition 3: the batch at offset"):
            decoded(data, side_by_side=side_by_side)


def offsets_grow(data: bytes) -> bool:
    below = 0
    for header, batch in iterate_batches(memoryview(data)):
        if header.base_offset < below or header.last_offset_delta < 0:
            return False
        below = header.base_offset
        for record in () if header.is_control else iterate_records(batch):
            if not below <= record.offset <= header.last_offset:
                return False
            below = record.offset + 1
        below = header.next_offset
    return True


def times_fit(data: bytes) -> bool:
    fits = range(-MILLISECONDS_MAX, MILLISECONDS_MAX + 1)
    return all(
        record.timestamp in fits
        and (header.is_append_time or record.timestamp - header.base_timestamp in fits)
        for header, batch in iterate_batches(memoryview(data))
        if not header.is_control
        for record in iterate_records(batch)
    )


@some
@given(stretches(), st.data())
def test_a_batch_with_a_wrong_crc_is_an_error_that_names_its_offset(
    drawn: Drawn, data: st.DataObject
) -> None:
    parts = [bytearray(part) for part in drawn.parts]
    number = data.draw(st.integers(0, len(parts) - 1))
    parts[number][data.draw(st.integers(17, len(parts[number]) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    broken = memoryview(parts[number])
    header, batch = next(iterate_batches(broken))
    assert not check_crc(batch)
    with pytest.raises(BadBatchError) as failure:
        decoded(b"".join(parts))
    assert failure.value.offset == header.base_offset
    assert failure.value.partition == PARTITION


@some
@given(st.binary(max_size=400))
@example(b"")
def test_arbitrary_bytes_are_an_error_or_no_rows(data: bytes) -> None:
    try:
        rows = decoded(data)
    except BadBatchError:
        return
    assert rows == []


@some
@given(stretches(), st.lists(st.sampled_from(ALL.wanted), unique=True, min_size=1))
def test_wanted_columns_are_those_of_all_columns(drawn: Drawn, names: list[str]) -> None:
    every = Decoder(PARTITION, ALL, first=0, end=drawn.end).feed(drawn.data)
    chosen = Decoder(PARTITION, Columns.of(names), first=0, end=drawn.end).feed(drawn.data)
    assert pa.Table.from_batches(chosen, Columns.of(names).schema()) == pa.Table.from_batches(
        every, ALL.schema()
    ).select(names)
