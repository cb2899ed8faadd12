"""Searches by time that pass many batches, or batches whose headers say more than is so."""

import struct
from collections.abc import Iterator

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, batch, by_time, new_log, of_largest_time, produce
from tidelog.kernel import limits
from tidelog.kernel.steps import at_once
from tidelog.node.log.log import Log
from tidelog.node.log.lookup import Search, ToLook, look_for
from tidelog.node.log.settings import LogSettings
from tidelog.wire.records import Record, encode_records, seal

LATE_MS = NOW_MS + 1_000


def empty_log(index_interval_bytes: int = 4096) -> Log:
    settings = LogSettings(index_interval_bytes=index_interval_bytes)
    return new_log(MemoryDisk().directory(), settings)


def lying(timestamp: int = LATE_MS, *, count: int = 1) -> memoryview:
    """A batch whose header says that it holds a record of that time, which it does not."""
    view = memoryview(bytearray(batch(count, size=0)))
    struct.pack_into(">q", view, 35, timestamp)
    seal(view)
    return view


def parts_of(search: Search) -> Iterator[ToLook | None]:
    """What the search asks for, while it finds nothing."""
    while True:
        try:
            yield search.send(None)
        except StopIteration:
            return


def test_a_search_lets_others_have_their_turn_where_it_passes_many_batches() -> None:
    log = empty_log(index_interval_bytes=1 << 30)
    for _ in range(2 * limits.HEADERS_PER_STEP + 10):
        produce(log, batch(1, size=0))
    produce(log, batch(1, timestamp=LATE_MS))
    parts = list(parts_of(log.offset_for_timestamp(LATE_MS, log.end)))
    assert parts[:2] == [None, None]
    assert len([part for part in parts if part]) == 1
    found = by_time(log, LATE_MS, log.end)
    assert found is not None
    assert found.offset == 2 * limits.HEADERS_PER_STEP + 10
    assert by_time(log, LATE_MS, log.end - 1) is None


def test_the_largest_timestamp_is_looked_for_in_turns_too() -> None:
    log = empty_log(index_interval_bytes=1 << 30)
    produce(log, batch(1, timestamp=LATE_MS))
    for _ in range(2 * limits.HEADERS_PER_STEP):
        produce(log, batch(1, size=0))
    produce(log, batch(1, timestamp=LATE_MS + 1))
    limit = log.end - 1
    parts = list(parts_of(log.offset_of_max_timestamp(limit)))
    assert parts[:2] == [None, None]
    assert of_largest_time(log, limit) == (LATE_MS, 0, 0)
    assert of_largest_time(log, log.end) == (LATE_MS + 1, limit, 0)


def test_the_index_leads_near_a_time_though_none_rose_for_long() -> None:
    log = empty_log(index_interval_bytes=200)
    produce(log, batch(1, timestamp=NOW_MS + 500))
    for _ in range(3 * limits.HEADERS_PER_STEP):
        produce(log, batch(1, size=0))
    late = log.end
    produce(log, batch(1, timestamp=LATE_MS))
    for _ in range(20):
        produce(log, batch(1, size=0))
    (part,) = parts_of(log.offset_for_timestamp(NOW_MS + 700, log.end))
    assert part is not None
    assert part.header.base_offset == late


def test_each_batch_that_only_says_it_has_the_time_is_looked_at_by_itself() -> None:
    log = empty_log()
    for _ in range(5):
        produce(log, lying())
    produce(log, batch(1, timestamp=LATE_MS))
    parts = list(parts_of(log.offset_for_timestamp(LATE_MS, log.end)))
    assert [part.header.base_offset for part in parts if part] == [0, 1, 2, 3, 4, 5]
    assert by_time(log, LATE_MS, log.end) == (LATE_MS, 5, 0)


def test_a_batch_of_more_records_than_are_looked_at_is_the_answer_as_a_whole() -> None:
    log = empty_log()
    count = limits.RECORDS_LOOKED_AT_MAX + 1
    view = lying()
    struct.pack_into(">i", view, 23, count - 1)
    struct.pack_into(">i", view, 57, count)
    seal(view)
    produce(log, view)
    assert by_time(log, LATE_MS, log.end) == (LATE_MS, 0, 0)
    log.advance_start(7)
    assert by_time(log, LATE_MS, log.end) == (LATE_MS, 7, 0), "nothing below the start is readable"


def test_all_batches_of_one_search_share_what_is_looked_at() -> None:
    log = empty_log()
    for _ in range(3):
        produce(log, lying(count=5))
    search = log.offset_for_timestamp(LATE_MS, log.end)
    first = search.send(None)
    assert first is not None
    first.allowance.records = 9
    assert at_once(look_for(first)) is None
    second = search.send(None)
    assert second is not None
    assert at_once(look_for(second)) == (LATE_MS, 5, 0)


def test_a_search_goes_on_in_the_log_as_it_is_by_then() -> None:
    log = empty_log()
    for _ in range(3):
        produce(log, lying())
        log.roll(NOW_MS)
    produce(log, batch(1, timestamp=LATE_MS))
    search = log.offset_for_timestamp(LATE_MS, log.end)
    first = search.send(None)
    assert first is not None
    log.advance_start(2)
    second = search.send(None)
    assert second is not None
    assert (first.header.base_offset, second.header.base_offset) == (0, 2)


def test_a_time_that_no_number_on_the_wire_can_say_is_not_found() -> None:
    rows = [Record(0, 2**62, b"k", b"v"), Record(1, 2**63 + 5, b"k", b"v")]
    view = memoryview(bytearray(batch(1)[:61]) + encode_records(rows, 0, 2**62))
    struct.pack_into(">i", view, 8, len(view) - 12)
    struct.pack_into(">i", view, 23, 1)
    struct.pack_into(">q", view, 27, 2**62)
    struct.pack_into(">i", view, 57, 2)
    seal(view)
    log = empty_log()
    produce(log, view)
    assert by_time(log, NOW_MS, log.end) == (2**62, 0, 0)
    log.advance_start(1)
    assert by_time(log, NOW_MS, log.end) is None


def test_a_batch_whose_header_lacks_the_largest_timestamp_is_found_by_time() -> None:
    log = empty_log(index_interval_bytes=1)
    for at in range(5):
        view = memoryview(bytearray(batch(2, timestamp=NOW_MS + 10 * at)))
        struct.pack_into(">q", view, 35, -1)
        seal(view)
        produce(log, view)
    for _ in range(2):
        assert by_time(log, NOW_MS + 20, log.end) == (NOW_MS + 20, 4, 0)
        assert by_time(log, NOW_MS + 31, log.end) == (NOW_MS + 31, 7, 0)
        assert of_largest_time(log, log.end) == (NOW_MS + 41, 9, 0)
        log.roll(NOW_MS)
        sealed = log.segments[0]
        assert list(sealed.times.timestamps) == [NOW_MS + 10 * at + 1 for at in range(1, 5)]
        sealed.unload()
