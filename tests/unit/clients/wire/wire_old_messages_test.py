"""Message formats 0 and 1: the same records come of them, as record batches."""

import pytest

from harness.logs.old_messages import message, message_set
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import WireError
from tidelog.wire.old_messages import only_batches
from tidelog.wire.records import NO_TIMESTAMP_BIT, Record, build_batch, check_crc, iterate_batches
from tidelog.wire.records import iterate_records as records_in

ROWS = [
    Record(10, 1_000, b"k", b"v"),
    Record(11, 900, None, b""),
    Record(12, 1_100, b"", None),
]
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def read(data: bytes) -> list[Record]:
    found = []
    for _, batch in iterate_batches(only_batches(memoryview(data))):
        assert check_crc(batch)
        found += list(records_in(batch))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_format_1_has_times_and_counts_offsets_back_from_the_last(codec: Codec) -> None:
    assert read(message_set(1, ROWS, codec=codec)) == ROWS


@pytest.mark.parametrize("codec", CODECS)
def test_format_0_has_no_times(codec: Codec) -> None:
    data = message_set(0, ROWS, codec=codec)
    assert read(data) == [one._replace(timestamp=-1) for one in ROWS]
    for header, _ in iterate_batches(only_batches(memoryview(data))):
        assert header.attributes & NO_TIMESTAMP_BIT


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_the_outer_messages(codec: Codec) -> None:
    found = only_batches(memoryview(message_set(1, ROWS, codec=codec, append_time=7_000)))
    assert [one.timestamp for _, batch in iterate_batches(found) for one in records_in(batch)] == [
        7_000
    ] * 3
    assert all(header.is_append_time for header, _ in iterate_batches(found))


def test_what_compaction_left_keeps_its_offsets() -> None:
    gaps = [ROWS[0], ROWS[2]._replace(offset=19)]
    for codec in CODECS:
        assert read(message_set(1, gaps, codec=codec)) == gaps


def test_old_messages_and_batches_may_follow_each_other() -> None:
    batch = bytes(build_batch([Record(13, 5, b"new", None)]))
    data = message_set(0, ROWS[:1]) + batch + message_set(1, [Record(14, 6, None, b"old")]) + batch
    assert [one.key or one.value for one in read(data)] == [b"k", b"new", b"old", b"new"]


def test_batches_alone_stay_the_bytes_that_they_are() -> None:
    view = memoryview(bytes(build_batch(ROWS)))
    assert only_batches(view) is view
    cut = view[:-3]
    assert only_batches(cut) is cut


def test_a_tail_that_was_cut_is_left_out() -> None:
    data = message_set(1, ROWS)
    assert read(data[:-1]) == ROWS[:2]


def broken(at: int, value: int) -> bytes:
    data = bytearray(message_set(1, ROWS[:1]))
    data[at] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (broken(20, 9), "its CRC is wrong"),
        (message(1, Record(5, 0, None, b"x"), attributes=4), "codec 4"),
        (message(1, Record(5, 0, None, None), attributes=1), "codec 1"),
        (message(0, Record(5, 0, None, b"x" * 9), attributes=1), "gzip"),
        (message(0, Record(5, 0, None, b"x"), attributes=3), "lz4: the frame is cut"),
        (message_set(0, [ROWS[1], ROWS[0]], codec=Codec.GZIP), "out of order"),
    ],
)
def test_a_message_that_cannot_be_read_is_an_error(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        read(data)
