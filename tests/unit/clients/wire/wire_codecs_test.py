"""Compression: both forms of snappy, lz4 as Java takes it, and bombs that stay small."""

import gzip
import tracemalloc
import zlib
from random import Random

import cramjam
import pytest

from tidelog.kernel.limits import MIB
from tidelog.wire.codecs import Codec, compress, decompress
from tidelog.wire.errors import ErrorCode, Rejected, WireError

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 64 * MIB
BOMB_BYTES = 256 * MIB


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 100, 32_768, 65_536, 65_537, 3_000_000])
def test_what_is_compressed_comes_back(codec: Codec, size: int) -> None:
    for data in (b"a" * size, Random(size).randbytes(size)):
        assert decompress(codec, compress(codec, data)) == data
        assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_output_may_reach_the_limit_and_no_more(codec: Codec) -> None:
    packed = compress(codec, b"a" * 100_000)
    assert len(decompress(codec, packed, limit=100_000)) == 100_000
    with pytest.raises(Rejected) as refused:
        decompress(codec, packed, limit=99_999)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def bomb(codec: Codec) -> bytes:
    """A few hundred KiB that would become 256 MiB."""
    zeros = bytes(BOMB_BYTES)
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(zeros))
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, wbits=31)
        return packer.compress(zeros) + packer.flush()
    return bytes(getattr(cramjam, codec.name.lower()).compress(zeros))


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_more_than_the_limit(codec: Codec) -> None:
    packed = bomb(codec)
    assert len(packed) < BOMB_BYTES // 20
    tracemalloc.start()
    try:
        with pytest.raises(Rejected) as refused:
            decompress(codec, packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < LIMIT + 1 * MIB


@pytest.mark.slow
def test_a_bomb_of_xerial_blocks_is_refused() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(16 * MIB)))
    head = compress(Codec.SNAPPY, b"a")[:16]
    packed = head + (len(block).to_bytes(4, "big") + block) * 5
    with pytest.raises(Rejected):
        decompress(Codec.SNAPPY, packed)
    assert len(decompress(Codec.SNAPPY, packed[: len(head) + 4 * (len(block) + 4)])) == LIMIT


def test_a_snappy_block_that_lies_about_its_size_is_refused_unread() -> None:
    with pytest.raises(Rejected):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 10)


@pytest.mark.parametrize("exponent", [28, 31])
def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused(exponent: int) -> None:
    block = (1 | 1 << 1 | 100 << 3).to_bytes(3, "little") + b"a"
    frame = bytes.fromhex("28b52ffd00") + bytes([(exponent - 10) << 3]) + block
    with pytest.raises(WireError):
        decompress(Codec.ZSTD, frame)


def test_a_raw_snappy_block_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 50))) == b"abc" * 50


def test_snappy_is_written_as_a_xerial_stream() -> None:
    assert compress(Codec.SNAPPY, b"abc").startswith(
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    )


@pytest.mark.parametrize("level", [None, 1, 9, 12, 17])
def test_lz4_blocks_are_independent_for_java_refuses_others(level: int | None) -> None:
    packed = compress(Codec.LZ4, memoryview(b"abc" * 100_000), level=level)
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0b0010_0000
    assert bytes(cramjam.lz4.decompress(packed)) == b"abc" * 100_000


def test_gzip_of_several_members_is_one_text() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_data_is_a_wire_error(codec: Codec, damage: str) -> None:
    whole = compress(codec, Random(1).randbytes(5_000))
    data = {"cut": whole[: len(whole) // 2], "empty": b"", "noise": b"\xfe" * 50}[damage]
    with pytest.raises(WireError):
        decompress(codec, data)


@pytest.mark.parametrize(
    "block", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00", b"\x00\x00\x00\x05ab"]
)
def test_a_xerial_stream_with_a_wrong_block_is_a_wire_error(block: bytes) -> None:
    head = compress(Codec.SNAPPY, b"a")[:16]
    with pytest.raises(WireError):
        decompress(Codec.SNAPPY, head + block)
