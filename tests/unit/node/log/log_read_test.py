"""Reading: whole batches, limits, offsets by timestamp."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import (
    NOW,
    NOW_MS,
    batch,
    by_time,
    new_log,
    of_largest_time,
    produce,
    values_of,
)
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.log import Log
from tidelog.node.log.segment import RECENT_BATCHES
from tidelog.node.log.settings import LogSettings
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Record, build_batch, iterate_batches

SIZE = len(batch(2))


def log_of(batches: int, settings: LogSettings | None = None) -> Log:
    """Two records a batch."""
    log = new_log(MemoryDisk().directory(), settings)
    for at in range(batches):
        produce(log, batch(2, timestamp=NOW_MS + at * 10))
    return log


def bases(piece: FileSlice | None) -> list[int]:
    if piece is None:
        return []
    content = piece.file.read(piece.position, piece.size)
    found = list(iterate_batches(content))
    assert sum(len(one) for _, one in found) == len(piece), "a batch was cut"
    return [header.base_offset for header, _ in found]


def test_reading_starts_with_the_batch_that_holds_the_offset() -> None:
    log = log_of(5)
    assert bases(log.read(5, 10_000, 10, min_one=True)) == [4, 6, 8]
    assert bases(log.read(4, 10_000, 10, min_one=True)) == [4, 6, 8]


def test_reading_ends_before_the_limit_at_a_batch() -> None:
    log = log_of(5)
    assert bases(log.read(0, 10_000, 6, min_one=True)) == [0, 2, 4]
    assert bases(log.read(0, 10_000, 5, min_one=True)) == [0, 2]
    assert log.read(6, 10_000, 6, min_one=True) is None


def test_a_limit_beyond_the_end_is_the_end() -> None:
    assert bases(log_of(3).read(0, 10_000, 99, min_one=True)) == [0, 2, 4]


def test_the_size_asked_for_is_kept_in_whole_batches() -> None:
    log = log_of(5)
    assert bases(log.read(0, 3 * SIZE + 5, 10, min_one=True)) == [0, 2, 4]
    assert bases(log.read(0, SIZE, 10, min_one=False)) == [0]


def test_at_least_one_batch_comes_where_one_is_owed() -> None:
    log = log_of(5)
    assert bases(log.read(2, 1, 10, min_one=True)) == [2]
    assert log.read(2, 1, 10, min_one=False) is None


@pytest.mark.parametrize("offset", [-1, 11])
def test_an_offset_outside_the_log_is_refused(offset: int) -> None:
    with pytest.raises(Rejected) as caught:
        log_of(5).read(offset, 100, 10, min_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_below_the_start_is_refused() -> None:
    log = log_of(5)
    log.advance_start(4)
    with pytest.raises(Rejected):
        log.read(3, 100, 10, min_one=True)
    assert values_of(log) == [4, 5, 6, 7, 8, 9]


def test_a_read_stays_in_one_segment() -> None:
    log = log_of(5, LogSettings(segment_bytes=2 * SIZE))
    assert bases(log.read(0, 10_000, 10, min_one=True)) == [0, 2]
    assert bases(log.read(3, 10_000, 10, min_one=True)) == [2]
    assert bases(log.read(8, 10_000, 10, min_one=True)) == [8]


def test_far_behind_the_end_the_index_finds_the_batch() -> None:
    log = log_of(3 * RECENT_BATCHES)
    for offset in (0, 1, 777, 2 * RECENT_BATCHES):
        assert bases(log.read(offset, 2 * SIZE, log.end, min_one=True)) == [
            offset // 2 * 2,
            offset // 2 * 2 + 2,
        ]
    assert bases(log.read(0, 100 * SIZE, 9, min_one=True)) == [0, 2, 4, 6]


def test_many_sealed_segments_are_read_with_few_indexes_in_memory() -> None:
    log = log_of(60, LogSettings(segment_bytes=5 * SIZE, index_interval_bytes=SIZE))
    for _ in range(2):
        for offset in range(0, 120, 7):
            assert bases(log.read(offset, SIZE, 120, min_one=True)) == [offset // 2 * 2]


def test_what_compaction_removed_is_stepped_over() -> None:
    log = new_log(MemoryDisk().directory(), LogSettings(compact=True))
    produce(log, batch(2, keys=True))
    log.roll(NOW_MS)
    far = batch(2, keys=True)
    far[:8] = (50).to_bytes(8, "big")
    log.append_as_follower(NOW, NOW_MS, far)
    assert bases(log.read(30, 1000, 52, min_one=True)) == [50]
    farther = batch(2, keys=True)
    farther[:8] = (90).to_bytes(8, "big")
    log.append_as_follower(NOW, NOW_MS, farther)
    assert bases(log.read(60, 1000, 92, min_one=True)) == [90], "and in one segment"
    assert bases(log.read(50, 1000, 60, min_one=True)) == [50]


# -- by timestamp


def test_the_first_record_not_before_a_time_is_found() -> None:
    log = log_of(200, LogSettings(segment_bytes=20 * SIZE, index_interval_bytes=SIZE))
    for asked, offset in (
        (0, 0),
        (NOW_MS, 0),
        (NOW_MS + 1, 1),
        (NOW_MS + 2, 2),
        (NOW_MS + 995, 200),
    ):
        found = by_time(log, asked, log.end)
        assert found is not None
        assert found.offset == offset
        assert found.leader_epoch == 0


def test_no_record_is_late_enough() -> None:
    log = log_of(5)
    assert by_time(log, NOW_MS + 42, log.end) is None
    assert by_time(log, NOW_MS + 40, 8) is None, "above the limit"
    assert by_time(log, 0, 0) is None


def test_deleted_records_are_not_found_by_time() -> None:
    log = log_of(5)
    log.advance_start(3)
    found = by_time(log, 0, log.end)
    assert found is not None
    assert found.offset == 3


def test_the_largest_timestamp_is_found_where_it_is_and_below_the_limit() -> None:
    log = new_log(MemoryDisk().directory(), LogSettings(segment_bytes=2 * SIZE))
    for late in (5, 90, 7, 40, 90, 3):
        produce(log, batch(2, timestamp=NOW_MS + late))
    assert of_largest_time(log, log.end) == (NOW_MS + 91, 3, 0)
    assert of_largest_time(log, 2) == (NOW_MS + 6, 1, 0)
    log.advance_start(4)
    assert of_largest_time(log, 8) == (NOW_MS + 41, 7, 0)
    assert of_largest_time(log, 0) is None


def test_records_without_timestamps_have_no_largest() -> None:
    log = new_log(MemoryDisk().directory())
    produce(log, memoryview(build_batch([Record(0, -1, None, b"v", ())])))
    assert of_largest_time(log, 1) is None
    assert by_time(log, 0, 1) is None


def test_of_a_batch_nobody_can_read_the_whole_is_the_answer() -> None:
    log = log_of(1)
    view = batch(2, timestamp=NOW_MS + 500)
    view[61] = 0x7F
    view[17:21] = crc32c(view[21:]).to_bytes(4, "big")
    produce(log, view)
    assert by_time(log, NOW_MS + 100, 4) == (NOW_MS + 501, 2, 0)


def test_a_header_that_promises_a_time_no_record_has_is_passed_over() -> None:
    log = log_of(1)
    view = batch(2, timestamp=NOW_MS + 500)
    view[35:43] = (NOW_MS + 900).to_bytes(8, "big")
    view[17:21] = crc32c(view[21:]).to_bytes(4, "big")
    produce(log, view)
    assert by_time(log, NOW_MS + 800, 4) is None
    assert of_largest_time(log, 4) == (NOW_MS + 900, 2, 0)
