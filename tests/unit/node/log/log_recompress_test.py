"""A topic that keeps one codec: what comes in another is packed anew."""

from itertools import product
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import produce_request
from harness.logs.batches import NOW_MS, batch
from harness.machines.brokers import HandlerBench
from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.kernel.steps import at_once
from tidelog.node.log.looking import Allowance
from tidelog.node.log.recompress import recompressed
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import BatchRules, rules_of, validate_produced
from tidelog.wire.codecs import Codec, compress
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import (
    BatchHeader,
    Origin,
    Record,
    build_batch,
    check_crc,
    iterate_records,
    read_header,
)

RECORDS = [Record(at, NOW_MS + at, b"k%d" % at, b"v" * 200, (("h", b"x"),)) for at in range(20)]
RESTS = [name for name in BatchHeader._fields if name not in {"batch_length", "attributes", "crc"}]


def rules(codec: Codec, level: int | None = None, size_max: int = 1_000_000) -> BatchRules:
    return rules_of(LogSettings(codec=codec, codec_level=level, max_message_bytes=size_max))


def packed(view: memoryview, wanted: BatchRules) -> memoryview:
    header = validate_produced(view, wanted, NOW_MS)
    made, told = at_once(recompressed(view, header, wanted, Allowance()))
    assert told == read_header(made)
    assert check_crc(made)
    return made


def sent(codec: Codec) -> memoryview:
    return memoryview(build_batch(RECORDS, codec=codec, origin=Origin(7, 1, 3)))


@pytest.mark.parametrize(("come", "kept"), list(product(Codec, Codec)))
def test_records_and_all_else_of_the_header_stay(come: Codec, kept: Codec) -> None:
    view = sent(come)
    made = packed(view, rules(kept))
    assert list(iterate_records(made)) == RECORDS
    old, new = read_header(view), read_header(made)
    assert (new.codec_bits, new.batch_length) == (kept, len(made) - 12)
    assert [getattr(new, name) for name in RESTS] == [getattr(old, name) for name in RESTS]


def test_the_level_counts() -> None:
    text = memoryview(build_batch([Record(0, NOW_MS, None, Path(__file__).read_bytes(), ())]))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.ZSTD, -7, 19), (Codec.LZ4, 9, 17)):
        small, large = packed(text, rules(codec, high)), packed(text, rules(codec, low))
        assert len(small) < len(large)


def test_a_batch_stamped_with_the_brokers_time_keeps_the_stamp() -> None:
    wanted = rules_of(LogSettings(codec=Codec.ZSTD, log_append_time=True))
    made = packed(sent(Codec.GZIP), wanted)
    assert read_header(made).max_timestamp == NOW_MS
    assert {record.timestamp for record in iterate_records(made)} == {NOW_MS}


def refusal(body: bytes, wanted: BatchRules) -> Rejected:
    header = read_header(batch(1))._replace(attributes=Codec.GZIP)
    with pytest.raises(Rejected) as refused:
        at_once(recompressed(memoryview(bytes(61) + body), header, wanted, Allowance()))
    return refused.value


@pytest.mark.parametrize("kept", [Codec.NONE, Codec.ZSTD])
def test_a_bomb_is_too_large_and_not_unpacked(kept: Codec) -> None:
    body = compress(Codec.GZIP, bytes(DECOMPRESSED_BATCH_BYTES_MAX + 1))
    assert refusal(body, rules(kept)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_has_grown_too_large_is_refused() -> None:
    body = compress(Codec.GZIP, bytes(5_000))
    assert refusal(body, rules(Codec.NONE, size_max=4_000)).code is ErrorCode.MESSAGE_TOO_LARGE
    grown = refusal(body, rules(Codec.NONE, size_max=5_060))
    assert "batch of 5061 bytes; max.message.bytes=5060" in grown.detail


def test_what_is_not_of_its_codec_is_no_record() -> None:
    assert refusal(b"not gzip at all", rules(Codec.LZ4)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("version", "code"), [(9, 76), (10, 0)])
def test_a_client_too_old_for_zstd_is_told_so(tmp_path: Path, version: int, code: int) -> None:
    bench = HandlerBench(tmp_path)
    bench.topic("t", compression_type="zstd")
    bench.ask(k00_produce.API, 9, produce_request("t", build_batch(RECORDS)))
    request = fetch_request("t", 0)
    (topic,) = bench.ask(k01_fetch.API, version, request).responses
    assert topic.partitions[0].error_code == code


def test_a_broker_keeps_what_it_packed(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.topic("t", compression_type="zstd", compression_zstd_level="5")
    for codec in Codec:
        view = build_batch(RECORDS, codec=codec)
        answer = bench.ask(k00_produce.API, 9, produce_request("t", view))
        assert answer.responses[0].partition_responses[0].error_code == 0
    (replica,) = bench.broker.replicas
    assert replica.log.end == 20 * len(Codec)
    found = replica.log.read(0, 1_000_000, 1_000, min_one=True)
    assert found is not None
    kept = found.file.read(found.position, found.size)
    assert read_header(kept).codec_bits == Codec.ZSTD


def test_one_request_gets_no_more_memory_than_a_request_may_have() -> None:
    view, wanted, allowance = sent(Codec.ZSTD), rules(Codec.NONE), Allowance()
    header = validate_produced(view, wanted, NOW_MS)
    size = len(at_once(recompressed(view, header, wanted, allowance))[0])
    allowance.packed_bytes = size - 1
    with pytest.raises(Rejected) as caught:
        at_once(recompressed(view, header, wanted, allowance))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
