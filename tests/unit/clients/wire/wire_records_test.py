"""Record batches: what a broker checks and changes, and which bytes are no batch."""

from struct import pack_into

import pytest

from tidelog.wire import crc
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    iterate_records,
    place_batch,
    read_header,
    stamp_append_time,
)

RECORDS = [
    Record(0, 1_000, b"k", b"v"),
    Record(1, 900, None, b"w" * 100, (("name", b"x"), ("empty", None))),
    Record(4, 2_000, b"k", None),
]


def batch(codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(RECORDS, codec=codec)


def test_the_header_says_what_the_records_are() -> None:
    header = read_header(batch())
    assert header.base_offset == 0
    assert header.last_offset == 4
    assert header.next_offset == 5
    assert header.base_timestamp == 1_000
    assert header.max_timestamp == 2_000
    assert header.record_count == 3
    assert header.size_bytes == len(batch())
    assert header[-4:-1] == (-1, -1, -1)
    assert not header.is_append_time
    assert not header.is_transactional
    assert not header.is_control


def test_the_origin_stands_in_the_header() -> None:
    origin = Origin(7, 2, 30, TRANSACTIONAL_BIT | CONTROL_BIT, leader_epoch=9)
    header = read_header(build_batch(RECORDS, origin=origin))
    assert header.producer_id == 7
    assert header.producer_epoch == 2
    assert header.base_sequence == 30
    assert header.partition_leader_epoch == 9
    assert header.is_transactional
    assert header.is_control


@pytest.mark.parametrize("codec", Codec)
def test_placing_a_batch_moves_its_offsets_and_keeps_its_crc(codec: Codec) -> None:
    log = bytearray(b"before") + batch(codec)
    place_batch(log, 6, base_offset=100, leader_epoch=5)
    view = memoryview(log)[6:]
    assert check_crc(view)
    assert read_header(view).partition_leader_epoch == 5
    assert [record.offset for record in iterate_records(view)] == [100, 101, 104]


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_the_time_of_every_record(codec: Codec) -> None:
    stamped = batch(codec)
    stamp_append_time(stamped, 5_555)
    header = read_header(stamped)
    assert header.attributes == codec | APPEND_TIME_BIT
    assert header.base_timestamp == 1_000
    assert check_crc(memoryview(stamped))
    assert {record.timestamp for record in iterate_records(memoryview(stamped))} == {5_555}


def test_any_change_behind_the_crc_is_noticed() -> None:
    whole = batch()
    for position in range(21, len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        assert not check_crc(memoryview(changed)), position


def test_the_crc_is_found_also_where_the_package_has_changed_inside() -> None:
    assert crc.load("_crc32c").crc32c(b"123456789") == 0xE306_9283
    assert crc.load("_another").crc32c(b"123456789") == 0xE306_9283
    assert crc.crc32c(b"6789", crc.crc32c(memoryview(b"12345"))) == 0xE306_9283


def test_a_record_may_have_no_timestamp() -> None:
    given = [Record(0, -1, b"k", b"v"), Record(1, 1_700_000_000_000, b"k", b"v")]
    assert list(iterate_records(memoryview(build_batch(given)))) == given


def test_batches_follow_each_other_and_a_cut_tail_is_left_out() -> None:
    whole = bytes(batch() + batch(Codec.ZSTD))
    for size in range(len(whole) + 1):
        found = [part.nbytes for _, part in iterate_batches(memoryview(whole)[:size])]
        expected = [len(batch())] * (size >= len(batch()))
        expected += [len(batch(Codec.ZSTD))] * (size == len(whole))
        assert found == expected


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_batch_length_below_its_header_is_wrong(length: int) -> None:
    wrong = batch()
    pack_into(">i", wrong, 8, length)
    with pytest.raises(WireError):
        list(iterate_batches(memoryview(wrong)))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_wrong(magic: int) -> None:
    wrong = batch()
    wrong[16] = magic
    with pytest.raises(WireError):
        list(iterate_batches(memoryview(wrong)))


def test_fewer_bytes_than_a_header_are_none() -> None:
    with pytest.raises(WireError):
        read_header(bytes(HEADER_BYTES - 1))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    wrong = batch()
    wrong[22] = codec
    with pytest.raises(Rejected) as refused:
        list(iterate_records(memoryview(wrong)))
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_the_records_fill_the_batch_exactly(count: int) -> None:
    wrong = batch()
    pack_into(">i", wrong, 57, count)
    with pytest.raises(WireError):
        list(iterate_records(memoryview(wrong)))


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_compaction_emptied_has_no_records(codec: Codec) -> None:
    empty = batch()[:HEADER_BYTES]
    empty[22] = codec
    pack_into(">i", empty, 8, HEADER_BYTES - 12)
    pack_into(">i", empty, 57, 0)
    [(_, found)] = iterate_batches(memoryview(empty))
    assert list(iterate_records(found)) == []


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",  # negative length
        b"\x7e" + b"\x00" * 5,  # longer than the batch
        b"\x0c\x00\x00\x00\x03\x01\x00",  # a key of -2 bytes
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # a byte behind its headers
        b"\x0c\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x0c\x00\x00\x00\x01\x01\x7e",  # more headers than bytes
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without a name
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # a varint of eleven bytes
        b"\x0c\x00\x00\x00\x7e\x01\x00",  # a key longer than the record
    ],
)
def test_a_wrong_record_is_a_wire_error(body: bytes) -> None:
    wrong = batch()[:HEADER_BYTES] + body
    pack_into(">i", wrong, 8, len(wrong) - 12)
    pack_into(">i", wrong, 57, 1)
    with pytest.raises(WireError):
        list(iterate_records(memoryview(wrong)))
