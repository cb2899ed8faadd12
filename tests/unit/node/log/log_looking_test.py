"""A broker that has to look at a batch's records: what it finds, and how much it looks at."""

import struct

import pytest

from harness.logs.batches import NOW_MS
from tidelog.kernel import limits
from tidelog.kernel.steps import Pace, Steps, at_once
from tidelog.node.log.looking import Allowance
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_in_steps, validate_produced
from tidelog.wire.codecs import Codec, compress
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    read_header,
    seal,
)

RULES = rules_of(LogSettings())
COMPACTED = rules_of(LogSettings(compact=True, max_message_bytes=100 * limits.MIB))
TINY_KEYED = build_batch([Record(0, NOW_MS, b"", None)])[HEADER_BYTES:]


def batch_of_tiny(count: int, *, codec: Codec = Codec.NONE) -> memoryview:
    """So many keyed records of a few bytes, all with the offset delta 0."""
    body = bytes(TINY_KEYED) * count
    packed = body if codec is Codec.NONE else compress(codec, body)
    batch = build_batch([Record(0, NOW_MS, b"", None)])[:HEADER_BYTES] + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    seal(batch)
    return memoryview(batch)


def batch_of_counted(count: int, *, codec: Codec = Codec.NONE) -> memoryview:
    """The same, with offset deltas as they should be."""
    records = [Record(at, NOW_MS, b"", None) for at in range(count)]
    return memoryview(build_batch(records, codec=codec))


def without_timestamp(*timestamps: int, codec: Codec = Codec.NONE) -> memoryview:
    """A batch of records with these timestamps whose header says nothing of the largest."""
    records = [Record(at, stamp, b"k", b"v") for at, stamp in enumerate(timestamps)]
    batch = build_batch(records, codec=codec)
    struct.pack_into(">q", batch, 35, -1)
    seal(batch)
    return memoryview(batch)


def paces(steps: Steps[BatchHeader]) -> tuple[list[Pace], BatchHeader]:
    """What the work says at each of its pauses, and what it comes to."""
    found: list[Pace] = []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as end:
            return found, end.value


def test_every_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    records = [Record(at, NOW_MS, None if at % 10 == 3 else b"k", b"v") for at in range(100)]
    with pytest.raises(Rejected) as caught:
        validate_produced(memoryview(build_batch(records)), COMPACTED, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert caught.value.records == tuple((at, "no key") for at in range(3, 100, 10))


def test_only_so_many_records_without_a_key_are_named() -> None:
    records = [Record(at, NOW_MS, None, b"") for at in range(limits.RECORDS_NAMED_MAX + 10)]
    with pytest.raises(Rejected) as caught:
        validate_produced(memoryview(build_batch(records)), COMPACTED, NOW_MS)
    assert len(caught.value.records) == limits.RECORDS_NAMED_MAX


def test_a_batch_of_more_records_than_are_looked_at_is_too_large() -> None:
    view = batch_of_tiny(limits.RECORDS_LOOKED_AT_MAX + 1, codec=Codec.ZSTD)
    assert len(view) < 64 * limits.KIB, "its size does not say how much work it is"
    steps = validate_in_steps(view, COMPACTED, NOW_MS, Allowance())
    with pytest.raises(Rejected) as caught:
        next(steps)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_batches_of_one_request_share_what_is_looked_at() -> None:
    allowance = Allowance()
    view = batch_of_tiny(1_000)
    for _ in range(limits.RECORDS_LOOKED_AT_MAX // 1_000):
        allowance.take_records(1_000)
    with pytest.raises(Rejected) as caught:
        at_once(validate_in_steps(view, COMPACTED, NOW_MS, allowance))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_batches_of_one_request_share_the_bytes_that_are_unpacked() -> None:
    allowance = Allowance()
    view = batch_of_counted(2_000_000 // len(TINY_KEYED), codec=Codec.ZSTD)
    allowance.unpacked_bytes = limits.UNPACKED_BYTES_LIGHT
    at_once(validate_in_steps(view, COMPACTED, NOW_MS, allowance))
    assert allowance.unpacked_bytes < limits.UNPACKED_BYTES_LIGHT - 1_900_000
    allowance.unpacked_bytes = 1_000_000
    with pytest.raises(Rejected) as caught:
        at_once(validate_in_steps(view, COMPACTED, NOW_MS, allowance))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_many_records_are_looked_at_in_short_steps(codec: Codec) -> None:
    count = 3 * limits.RECORDS_PER_STEP
    found, header = paces(
        validate_in_steps(batch_of_counted(count, codec=codec), COMPACTED, NOW_MS, Allowance())
    )
    assert header.record_count == count
    assert found == [Pace.GO_ON] * 3


def test_a_batch_of_very_many_records_goes_where_it_holds_up_no_ordinary_one() -> None:
    view = batch_of_counted(limits.RECORDS_LIGHT + 1, codec=Codec.LZ4)
    found, _ = paces(validate_in_steps(view, COMPACTED, NOW_MS, Allowance()))
    assert found[0] is Pace.HEAVY
    assert set(found[1:]) == {Pace.GO_ON}


def test_few_records_that_unpack_to_many_bytes_go_there_too() -> None:
    value = bytes(limits.UNPACKED_BYTES_LIGHT)
    view = memoryview(build_batch([Record(0, NOW_MS, b"k", value)], codec=Codec.ZSTD))
    found, _ = paces(validate_in_steps(view, COMPACTED, NOW_MS, Allowance()))
    assert found == [Pace.HEAVY]


def test_a_header_without_the_largest_timestamp_gets_it_from_the_records() -> None:
    view = without_timestamp(NOW_MS, NOW_MS + 7, NOW_MS + 3)
    header = validate_produced(view, RULES, NOW_MS)
    assert header.max_timestamp == NOW_MS + 7
    assert header == read_header(view)
    assert check_crc(view)


def test_records_without_a_timestamp_leave_the_header_as_it_is() -> None:
    view = without_timestamp(-1, -1)
    before = bytes(view)
    assert validate_produced(view, RULES, NOW_MS).max_timestamp == -1
    assert bytes(view) == before


def test_a_compressed_batch_keeps_the_timestamp_of_its_header() -> None:
    view = without_timestamp(NOW_MS, codec=Codec.GZIP)
    before = bytes(view)
    assert validate_produced(view, RULES, NOW_MS).max_timestamp == -1
    assert bytes(view) == before


def test_a_timestamp_found_in_the_records_is_held_to_the_topic_s_bounds() -> None:
    with pytest.raises(Rejected) as caught:
        validate_produced(without_timestamp(NOW_MS + 7_200_000), RULES, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_append_time_needs_no_look_at_timestamps() -> None:
    view = without_timestamp(NOW_MS + 7_200_000)
    header = validate_produced(view, rules_of(LogSettings(log_append_time=True)), NOW_MS)
    assert header.max_timestamp == NOW_MS


def test_records_that_cannot_be_read_are_refused_when_their_timestamps_are_wanted() -> None:
    view = without_timestamp(NOW_MS, NOW_MS)
    view[HEADER_BYTES] = 0x7F  # the first record's length
    seal(view)
    with pytest.raises(Rejected) as caught:
        validate_produced(view, RULES, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
