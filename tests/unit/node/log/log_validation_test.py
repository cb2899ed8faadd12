"""What a produced batch must be, and which code says no."""

from struct import pack_into

import pytest

from harness.logs.batches import NOW_MS, batch
from tidelog.node.log.settings import HOUR_MS, LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.wire.codecs import Codec
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Record, build_batch, check_crc

RULES = rules_of(LogSettings())
COMPACTED = rules_of(LogSettings(compact=True))


def changed(at: int, form: str, value: int, *, view: memoryview | None = None) -> memoryview:
    """A batch with one field of its header changed, and a checksum that fits."""
    view = batch(3) if view is None else view
    pack_into(form, view, at, value)
    pack_into(">I", view, 17, crc32c(view[21:]))
    return view


def refusal(view: memoryview, *, settings: LogSettings | None = None) -> Rejected:
    with pytest.raises(Rejected) as caught:
        validate_produced(view, rules_of(settings or LogSettings()), NOW_MS)
    return caught.value


def test_an_ordinary_batch_passes_and_its_header_comes_back() -> None:
    header = validate_produced(batch(3, producer=(7, 1, 5)), RULES, NOW_MS)
    assert (header.record_count, header.producer_id, header.base_sequence) == (3, 7, 5)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_producer_s_batch_may_be_of_a_transaction(codec: int) -> None:
    view = changed(21, ">h", 0x10 | codec, view=batch(3, producer=(7, 1, 5)))
    assert validate_produced(view, RULES, NOW_MS).is_transactional


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_passes_without_a_look_inside(codec: Codec) -> None:
    view = memoryview(build_batch([Record(0, NOW_MS, None, b"v" * 99, ())], codec=codec))
    assert validate_produced(view, RULES, NOW_MS).codec_bits == codec


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (memoryview(b""), ErrorCode.INVALID_RECORD),
        (memoryview(bytes(16) + b"\x01" + bytes(10)), ErrorCode.INVALID_RECORD),
        (memoryview(bytes(16) + b"\x02" + bytes(10)), ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (memoryview(bytes(batch()) * 2), ErrorCode.INVALID_RECORD),
        (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (changed(8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, ">i", 3), ErrorCode.CORRUPT_MESSAGE),
        (changed(0, ">q", 1), ErrorCode.INVALID_RECORD),
        (changed(57, ">i", 4), ErrorCode.INVALID_RECORD),
        (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
        (changed(21, ">h", 0x10), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 0x40), ErrorCode.INVALID_RECORD),
        (batch(producer=(7, -1, 0)), ErrorCode.INVALID_RECORD),
        (batch(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
        (batch(timestamp=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused_with_its_code(
    view: memoryview, code: ErrorCode
) -> None:
    assert refusal(view).code is code


def test_a_flipped_bit_is_a_corrupt_message() -> None:
    view = batch(2)
    view[70] ^= 1
    assert refusal(view).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_over_the_topics_limit_is_too_large() -> None:
    view = batch(size=500)
    limit = len(view) - 1
    assert refusal(view, settings=LogSettings(max_message_bytes=limit)).code is (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    assert refusal(view, settings=LogSettings(segment_bytes=limit)).code is (
        ErrorCode.RECORD_LIST_TOO_LARGE
    )


def test_a_record_older_than_the_topic_takes_is_refused() -> None:
    settings = LogSettings(timestamp_before_max_ms=1000)
    assert refusal(batch(timestamp=NOW_MS - 1001), settings=settings).code is (
        ErrorCode.INVALID_TIMESTAMP
    )
    validate_produced(batch(timestamp=NOW_MS - 1000), rules_of(settings), NOW_MS)


def test_records_without_a_timestamp_pass() -> None:
    settings = LogSettings(timestamp_before_max_ms=0)
    view = memoryview(build_batch([Record(0, -1, None, b"v", ())]))
    assert validate_produced(view, rules_of(settings), NOW_MS).max_timestamp == -1


def test_an_unknown_flag_of_the_future_is_left_alone() -> None:
    assert validate_produced(changed(21, ">h", 0x100), RULES, NOW_MS).record_count == 3


def test_append_time_replaces_the_producers_time_and_the_checksum_fits() -> None:
    view = batch(3, timestamp=5)
    header = validate_produced(view, rules_of(LogSettings(log_append_time=True)), NOW_MS)
    assert header.is_append_time
    assert header.max_timestamp == NOW_MS
    assert check_crc(view)


def test_a_compacted_topic_names_the_first_record_without_a_key() -> None:
    records = [Record(0, NOW_MS, b"k", b"v", ()), Record(1, NOW_MS, None, b"v", ())]
    with pytest.raises(Rejected) as caught:
        validate_produced(memoryview(build_batch(records)), COMPACTED, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert caught.value.records == ((1, "no key"),)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("offsets", [(0, 1_000_000), (0, 2), (0, 0, 2), (0, 2, 2)])
def test_a_compacted_topic_refuses_records_whose_offsets_do_not_count_on(
    offsets: tuple[int, ...], codec: Codec
) -> None:
    """A record with too large an offset would never be compacted away."""
    records = [Record(offset, NOW_MS, b"k", b"v", ()) for offset in offsets]
    view = memoryview(build_batch(records, codec=codec))
    view = changed(23, ">i", len(offsets) - 1, view=view)
    with pytest.raises(Rejected) as caught:
        validate_produced(view, COMPACTED, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_takes_keyed_records() -> None:
    assert validate_produced(batch(4, keys=True), COMPACTED, NOW_MS).record_count == 4


def test_a_compacted_topic_refuses_records_it_cannot_read() -> None:
    view = batch(2, keys=True)
    view[61] = 0x7F  # the first record's length
    view = changed(61, ">B", 0x7F, view=view)
    with pytest.raises(Rejected) as caught:
        validate_produced(view, COMPACTED, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
