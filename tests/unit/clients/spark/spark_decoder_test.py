"""How a partition's records become columns: where it goes on, when it ends, what it refuses."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from harness.logs.old_messages import message_set
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition
from tidelog.spark import decoder as decoding
from tidelog.spark.arrow import ALL, PLAIN, BadBatchError, Columns, Decoder
from tidelog.spark.varints import read_varints
from tidelog.spark.walk import Chains, walk
from tidelog.wire.codecs import Codec
from tidelog.wire.old_messages import only_batches
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    EndMarker,
    Origin,
    Record,
    build_batch,
    build_marker,
    iterate_records,
    place_batch,
    seal,
)

PARTITION = ("t", Partition(1))
OFFSETS = Columns.of(["offset"])


def batch(base: int, count: int, *, codec: Codec = Codec.NONE, origin: Origin = Origin()) -> bytes:  # noqa: B008 -- a constant
    rows = [Record(base + n, 1_000 + n, b"%d" % (base + n), b"v" * n) for n in range(count)]
    return bytes(build_batch(rows, codec=codec, origin=origin))


def marker(base: int, producer: int, *, committed: bool) -> bytes:
    part = build_marker(EndMarker(producer, 0, 0, committed), 0)
    place_batch(part, 0, base_offset=base, leader_epoch=0)
    return bytes(part)


def decoder(
    first: int = 0, end: int = 10**9, columns: Columns = OFFSETS, rows: int = 100
) -> Decoder:
    return Decoder(PARTITION, columns, first=first, end=end, rows_per_batch=rows)


def offsets(batches: list[Any]) -> list[int]:
    return [offset for one in batches for offset in one.column("offset").to_pylist()]


# -- what is given ------------------------------------------------------------------------------


def test_rows_have_all_that_their_records_say() -> None:
    rows = [Record(7, 1_234, None, b"", (("h", b"1"), ("h", None))), Record(8, 1_235, b"k", None)]
    (found,) = decoder(columns=ALL).feed(build_batch(rows))
    first, second = found.to_pylist()
    assert first.pop("timestamp").isoformat() == "1970-01-01T00:00:01.234000+00:00"
    assert first == {
        "key": None,
        "value": b"",
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, [])


def test_no_batch_has_more_rows_than_asked_for() -> None:
    found = decoder(rows=4).feed(batch(0, 10) + batch(10, 3))
    assert [one.num_rows for one in found] == [4, 4, 4, 1]
    assert offsets(found) == list(range(13))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_many_batches_are_walked_side_by_side_and_long_ones_alone(codec: Codec) -> None:
    """More rows than are decoded at once, in chains of very different lengths."""
    sizes = [1, 30, 150] * 100 + [60_000, 1, 20_000]
    bases = np.cumsum([0, *sizes]).tolist()
    rows = [b"x" * (at % 150) for at in range(max(sizes))]
    data = b"".join(
        build_batch([Record(base + n, 0, None, rows[n]) for n in range(size)], codec=codec)
        for base, size in zip(bases, sizes, strict=False)
    )
    table = pa.Table.from_batches(decoder(columns=PLAIN, rows=10**6).feed(data))
    assert table.column("offset").to_pylist() == list(range(sum(sizes)))
    assert table.column("value").to_pylist() == [rows[n] for size in sizes for n in range(size)]


def test_batches_far_apart_are_brought_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_BYTES_IN_PLACE_MAX", 10)
    assert offsets(decoder().feed(batch(0, 3) + batch(3, 3))) == list(range(6))


def test_rows_outlive_the_buffer_that_they_came_in() -> None:
    buffer = bytearray(batch(0, 3))
    (found,) = decoder(columns=Columns.of(["value"])).feed(buffer)
    buffer[:] = bytes(len(buffer))
    assert found.column("value").to_pylist() == [b"", b"v", b"vv"]


# -- where it goes on ---------------------------------------------------------------------------


def test_it_goes_on_behind_the_last_whole_batch() -> None:
    reading = decoder()
    data = batch(0, 3) + batch(3, 3)
    assert offsets(reading.feed(data[:-1])) == [0, 1, 2]
    assert reading.next_offset == 3
    assert not reading.finished


def test_it_ends_within_a_batch() -> None:
    reading = decoder(first=1, end=5)
    assert offsets(reading.feed(batch(0, 3) + batch(3, 3) + batch(6, 3))) == [1, 2, 3, 4]
    assert reading.finished


def test_it_ends_where_only_a_later_batch_is_left() -> None:
    """Compaction removed what stood before the end; what stands behind says that it is all."""
    reading = decoder(end=5)
    assert offsets(reading.feed(batch(0, 3) + batch(8, 3))) == [0, 1, 2]
    assert reading.finished
    assert reading.next_offset == 5


def test_what_readers_do_not_see_is_passed_by() -> None:
    open_batch = batch(0, 2, origin=Origin(9, 0, 0, TRANSACTIONAL_BIT))
    data = open_batch + marker(2, 9, committed=False) + batch(3, 1)
    plain = decoder()
    assert offsets(plain.feed(data, [(9, 0)])) == [0, 1, 3]
    committed = Decoder(PARTITION, OFFSETS, first=0, end=4, isolation=Isolation.READ_COMMITTED)
    assert offsets(committed.feed(data, [(9, 0)])) == [3]
    assert committed.finished


# -- what it refuses ----------------------------------------------------------------------------


def refused(data: bytes | bytearray) -> BadBatchError:
    with pytest.raises(BadBatchError) as failure:
        decoder(columns=ALL).feed(data)
    return failure.value


def lying(at: int, value: bytes) -> bytes:
    """The second of three batches says something else at a place of its own."""
    second = bytearray(batch(3, 3))
    second[at : at + len(value)] = value
    seal(second)
    return batch(0, 3) + bytes(second) + batch(6, 3)


def test_the_batch_that_cannot_be_read_is_named() -> None:
    failure = refused(lying(61, b"\x7f"))
    assert failure.offset == 3
    assert str(failure).startswith("topic 't' partition 1: the batch at offset 3 cannot be read: ")


@pytest.mark.parametrize("count", [0, 2, 4, 2**31 - 1])
def test_a_wrong_number_of_records_is_refused(count: int) -> None:
    assert refused(lying(57, count.to_bytes(4, "big"))).offset == 3


def test_a_wrong_crc_is_refused() -> None:
    data = bytearray(lying(61, b""))
    data[len(batch(0, 3)) + 70] ^= 1
    assert refused(data).reason == "its CRC is wrong"


def test_a_last_offset_that_hides_what_follows_is_refused() -> None:
    assert refused(lying(23, (90).to_bytes(4, "big"))).reason == "its offsets are out of order"


def test_a_time_beyond_sparks_is_refused() -> None:
    assert "no microsecond" in refused(lying(27, (2**62).to_bytes(8, "big"))).reason


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"name", "name"),
        (b"\xffame", "\ufffdame"),
        (b"n\xe2\x82e", "n\ufffde"),
        (b"na\xc0\x80", "na\ufffd\ufffd"),
        (b"\xed\xa0\x80e", "\ufffde"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_what_is_not_utf_8_in_a_header_name_is_replaced(raw: bytes, shown: str) -> None:
    rows = [
        Record(0, 0, None, b"before", (("\u00e4", b"1"),)),
        Record(1, 0, None, b"odd", (("name", b"2"), ("b", None))),
    ]
    part = bytearray(build_batch(rows))
    at = part.index(b"name")
    part[at : at + 4] = raw
    seal(part)
    headers = [row["headers"] for one in decoder(columns=ALL).feed(part) for row in one.to_pylist()]
    assert headers == [
        [{"key": "\u00e4", "value": b"1"}],
        [{"key": shown, "value": b"2"}, {"key": "b", "value": None}],
    ]
    assert [one.headers for one in iterate_records(memoryview(part))] == [
        (("\u00e4", b"1"),),
        ((shown, b"2"), ("b", None)),
    ]


def test_what_has_no_magic_of_ours_is_refused() -> None:
    data = bytearray(batch(0, 3))
    data[16] = 1
    assert "magic 1" in refused(data).reason


def test_a_record_of_message_format_0_has_no_kind_of_time() -> None:
    data = message_set(0, [Record(5, 0, b"k", b"v")]) + batch(6, 1)
    (rows,) = decoder(columns=ALL).feed(only_batches(memoryview(data)))
    assert rows.column("timestampType").to_pylist() == [-1, 0]
    assert [one.timestamp() for one in rows.column("timestamp").to_pylist()] == [-0.001, 1.0]


# -- varints ------------------------------------------------------------------------------------


def test_a_varint_of_more_than_64_bits_leads_out_of_the_data() -> None:
    data = np.frombuffer(b"\xff" * 9 + b"\x02" + bytes(9), dtype=np.uint8)
    _, behind = read_varints(data, np.array([0]))
    assert behind[0] > len(data)


@pytest.mark.parametrize("alike", [0, 127, 128, 1_023, 1_024, 1_025, 5_000])
def test_records_of_one_size_are_found_by_the_hundreds(alike: int) -> None:
    """Whatever stands before and behind them; 164 is said in a byte that 100 begins with, too."""
    sizes = [3, 130, 9_000, *[100] * alike, 164, *[100] * 200, 7, *[3] * 300, 9_000, 9_000]
    rows = [Record(at, 0, None, bytes(size)) for at, size in enumerate(sizes)]
    part = build_batch(rows)
    table = pa.Table.from_batches(decoder(columns=PLAIN, rows=10**6).feed(part))
    assert table.column("value").to_pylist() == [row.value for row in rows]


def test_a_chain_of_records_of_one_size_that_claims_one_more_is_broken() -> None:
    part = bytearray(build_batch([Record(at, 0, None, bytes(40)) for at in range(300)]))
    count = 300
    part[57:61] = (count + 1).to_bytes(4, "big")
    seal(part)
    assert refused(part).offset == 0


def test_a_chain_that_steps_over_its_end_is_broken() -> None:
    data = np.frombuffer(b"\x04ab\x06abc", dtype=np.uint8)
    starts, stops, counts = np.array([0, 0]), np.array([7, 6]), np.array([2, 2])
    walked = walk(data, Chains(starts, stops, counts))
    assert walked.broken.tolist() == [1]
    assert walked.starts[:2].tolist() == [0, 3]
