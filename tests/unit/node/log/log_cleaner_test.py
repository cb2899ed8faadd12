"""What compaction keeps, record by record, and when it finds a log worth its while."""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import (
    MAP_BYTES,
    aborted_of,
    append,
    append_marker,
    batches_of,
    compact,
    records_of,
)
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.cleaner import Candidate, candidate, filthiest, is_due
from tidelog.node.log.cleaning import KeyMap, SegmentFacts, grouped
from tidelog.node.log.cleaning_records import take_apart
from tidelog.node.log.settings import LogSettings
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import WireError
from tidelog.wire.records import (
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    iterate_records,
)

DAY_MS = 86_400_000
Rows = list[tuple[bytes | None, bytes | None]]


class Place:
    """A compacted log on a disk in memory."""

    def __init__(self, **settings: object) -> None:
        self.disk = MemoryDisk()
        self.settings = LogSettings(compact=True, delete=False, **settings)  # type: ignore[arg-type] # by name
        self.logs = open_logs(self.disk.directory(), settings=self.settings)
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)

    def seal(self, *batches: Rows, timestamp: int = NOW_MS, codec: Codec = Codec.NONE) -> None:
        """These batches, in a segment that will not change any more."""
        for rows in batches:
            append(self.log, rows, timestamp=timestamp, codec=codec)
        self.log.roll(timestamp)
        flush(self.log)

    def compact(self, now_ms: int = NOW_MS, *, map_bytes_max: int = MAP_BYTES) -> None:
        compact(self.logs, self.log, now_ms, map_bytes_max=map_bytes_max)

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(row.offset, row.key, row.value) for row in records_of(self.log)]

    def candidate(self, now_ms: int = NOW_MS, water: int | None = None) -> Candidate | None:
        cleaned = self.logs.cleaned(self.log.name.key)
        return candidate(self.log, cleaned, self.log.end if water is None else water, now_ms)


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    place = Place()
    place.seal([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"c", b"1")], [(b"b", b"2")])
    place.compact()
    assert place.rows() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert place.log.end == 5
    assert place.logs.cleaned(place.log.name.key) == 5


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_its_offsets_times_and_codec(codec: Codec) -> None:
    place = Place()
    place.seal([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1")], codec=codec)
    place.seal([(b"c", b"2")])
    place.compact()
    header, rows = batches_of(place.log)[0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 2)
    assert header.codec_bits == codec
    assert header.max_timestamp == NOW_MS + 2
    assert rows == [
        Record(1, NOW_MS + 1, b"b", b"1"),
        Record(2, NOW_MS + 2, b"a", b"2"),
    ]


def test_the_active_segment_is_left_alone() -> None:
    place = Place()
    place.seal([(b"a", b"1")])
    append(place.log, [(b"a", b"2"), (b"a", b"3")])
    flush(place.log)
    place.compact()
    assert [row[0] for row in place.rows()] == [0, 1, 2]


def test_a_record_without_a_key_goes() -> None:
    place = Place()
    place.seal([(None, b"1"), (b"a", b"1")])
    place.compact()
    assert place.rows() == [(1, b"a", b"1")]


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    place = Place(delete_retention_ms=DAY_MS)
    place.seal([(b"a", b"1"), (b"b", b"1")], [(b"a", None)])
    place.compact()
    assert place.rows() == [(1, b"b", b"1"), (2, b"a", None)]
    header, rows = batches_of(place.log)[1]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert rows[0].timestamp == NOW_MS
    place.seal([(b"x", b"1")])
    place.compact(NOW_MS + DAY_MS - 1)
    assert (2, b"a", None) in place.rows()
    assert batches_of(place.log)[1][0].base_timestamp == NOW_MS + DAY_MS
    place.seal([(b"y", b"1")])
    place.compact(NOW_MS + DAY_MS)
    assert [row[1] for row in place.rows()] == [b"b", b"x", b"y"]


def test_the_last_batch_of_a_known_producer_stays_as_a_header() -> None:
    place = Place()
    for sequence in range(2):
        origin = Origin(7, 3, sequence)
        append(place.log, [(b"a", b"1")], origin=origin)
    place.seal([(b"a", b"2")])
    place.compact()
    headers = [(header.base_offset, len(rows)) for header, rows in batches_of(place.log)]
    assert headers == [(1, 0), (2, 1)]
    kept = batches_of(place.log)[0][0]
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (7, 3, 1)


def test_the_last_batch_of_a_round_stays_as_a_header() -> None:
    place = Place()
    place.seal([(b"a", b"1")], [(None, b"nothing")])
    place.compact()
    found = [(header.base_offset, len(rows)) for header, rows in batches_of(place.log)]
    assert found == [(0, 1), (1, 0)]


def test_what_was_aborted_goes_and_its_marker_a_time_later() -> None:
    place = Place(delete_retention_ms=DAY_MS)
    origin = Origin(7, 0, 0, TRANSACTIONAL_BIT)
    append(place.log, [(b"a", b"good")])
    append(place.log, [(b"a", b"aborted")], origin=origin)
    append(place.log, [(b"b", b"aborted")], origin=origin._replace(base_sequence=1))
    append_marker(place.log, 7, commit=False)
    place.seal([(b"z", b"1")])
    place.compact()
    assert place.rows() == [(0, b"a", b"good"), (4, b"z", b"1")]
    # The producer's last batch stays as a header, and so does the marker, until it is forgotten.
    assert [header.base_offset for header, _ in batches_of(place.log)] == [0, 2, 3, 4]
    place.log.expire_producers(NOW_MS + 2 * DAY_MS)
    kept = []
    for at in range(4):
        place.seal([(b"z", b"%d" % at)])
        place.compact(NOW_MS + at * (DAY_MS - 1))
        kept.append([header.base_offset for header, _ in batches_of(place.log)][:3])
    # Its data goes, then its horizon is set, and has not passed; then it has.
    assert [3 in offsets for offsets in kept] == [True, True, True, False]
    assert 2 not in kept[0]


def test_a_full_disk_does_not_stop_a_segment_that_is_put_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It needs no room any more: the checksum of its index can be missing."""
    place = Place(delete_retention_ms=DAY_MS)
    append(place.log, [(b"a", b"aborted")], origin=Origin(7, 0, 0, TRANSACTIONAL_BIT))
    append_marker(place.log, 7, commit=False)
    place.seal([(b"z", b"1")], [(b"z", b"2")])
    directory = place.log.directory

    def full(name: str, _content: bytes, **_: bool) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", name)

    put_aside = []

    def on_loop(call: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(directory, "replace", full)
            put_aside.append(call())
        return put_aside[-1]

    compact(place.logs, place.log, on_loop=on_loop)
    assert len(put_aside) == 3, "it was begun, taken and finished"
    assert place.rows() == [(3, b"z", b"2")]
    assert [one.producer_id for one in aborted_of(place.log)] == [7]


def test_what_was_written_after_a_cut_below_the_clean_part_is_compacted_too() -> None:
    """Else a tombstone there would go after its time, and the value before it would stay."""
    place = Place(delete_retention_ms=DAY_MS)
    place.seal([(b"a", b"1")])
    place.seal([(b"b", b"1")], [(b"c", b"1")], [(b"d", b"1")])
    place.compact()
    place.log.truncate_to(1)
    place.seal([(b"a", None)], [(b"x", b"1")], [(b"y", b"1")], [(b"z", b"1")])
    for at in range(4):
        place.seal([(b"z", b"%d" % at)])
        place.compact(NOW_MS + at * DAY_MS)
    assert [row[1:] for row in place.rows()] == [(b"x", b"1"), (b"y", b"1"), (b"z", b"3")]


def test_marker_outlives_data() -> None:
    """5.21: a committed marker stays while its data does, however old it is."""
    place = Place(delete_retention_ms=0)
    append(place.log, [(b"a", b"1")], origin=Origin(7, 0, 0, TRANSACTIONAL_BIT))
    append_marker(place.log, 7, commit=True)
    for number in range(4):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
        assert [header.base_offset for header, _ in batches_of(place.log) if header.is_control]


def test_small_segments_become_one() -> None:
    place = Place(segment_bytes=10_000)
    for number in range(5):
        place.seal([(b"%d" % number, b"1")])
    place.compact()
    assert [segment.base for segment in place.log.segments] == [0, 5]
    assert len(place.rows()) == 5
    assert [name for name in place.log.directory.names() if name.endswith(".snapshot")] == [
        f"{5:020d}.snapshot"
    ]


@pytest.mark.parametrize("size", [1, 300, 700])
def test_keys_that_do_not_fit_into_memory_are_learnt_in_later_rounds(size: int) -> None:
    place = Place()
    for number in range(30):
        place.seal([(b"k%d" % (number % 7), b"%d" % number)])
    passes = 0
    while (place.logs.cleaned(place.log.name.key) or 0) < 30:
        place.compact(map_bytes_max=size)
        passes += 1
    assert passes > 1
    assert [row[2] for row in place.rows()] == [b"%d" % number for number in range(23, 30)]


def test_a_damaged_segment_is_not_given_a_new_checksum() -> None:
    place = Place()
    place.seal([(b"a", b"1")], [(b"a", b"2")])
    place.log.directory.content(f"{0:020d}.log")[100] ^= 1  # type: ignore[attr-defined] # MemoryDirectory
    with pytest.raises(CorruptError, match="checksum"):
        place.compact()


def test_a_log_that_changed_meanwhile_takes_nothing() -> None:
    place = Place()
    place.seal([(b"a", b"1")])
    place.seal([(b"a", b"2")])
    log = place.log
    log.directory.open(f"{0:020d}.log.cleaned")
    assert log.begin_swap([0, 7], 0, cuts=0) is None
    assert log.begin_swap([log.segments[-1].base], 0, cuts=0) is None
    assert log.begin_swap([0], 0, cuts=0) is not None
    log.truncate_to(1)
    assert log.begin_swap([0], 0, cuts=0) is None


def test_only_what_is_stable_flushed_and_old_enough_is_cleanable() -> None:
    place = Place(min_compaction_lag_ms=1_000, min_cleanable_dirty_ratio=0.0)
    place.seal([(b"a", b"1")], timestamp=NOW_MS - 5_000)
    place.seal([(b"a", b"2")], timestamp=NOW_MS - 2_000)
    place.seal([(b"a", b"3")], timestamp=NOW_MS - 500)

    def cleanable(now_ms: int = NOW_MS, water: int | None = None) -> list[int]:
        found = place.candidate(now_ms, water)
        return [segment.base for segment in found.cleanable] if found else []

    assert cleanable() == [0, 1]
    assert cleanable(NOW_MS + 500) == [0, 1, 2]
    assert cleanable(NOW_MS + 500, water=2) == [0, 1]
    assert cleanable(NOW_MS + 500, water=1) == [0]
    assert cleanable(NOW_MS + 500, water=0) == []
    place.log.recovery_point = 1
    assert cleanable(NOW_MS + 500) == [0]


def test_a_log_is_due_when_enough_of_it_is_dirty() -> None:
    place = Place(min_cleanable_dirty_ratio=0.5)
    place.seal([(b"a", bytes(1_000))])
    assert place.candidate() is not None
    place.compact()
    assert place.candidate() is None
    place.seal([(b"b", bytes(900))])
    found = place.candidate()
    assert found is not None
    assert not is_due(found)
    place.seal([(b"c", bytes(900))])
    found = place.candidate()
    assert found is not None
    assert is_due(found)
    assert filthiest([found]) is found


def test_a_log_is_due_when_a_record_waited_too_long() -> None:
    place = Place(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1_000)
    place.seal([(b"a", b"1")])
    for late_ms, due in ((1_000, False), (1_001, True)):
        found = place.candidate(NOW_MS + late_ms)
        assert found is not None
        assert is_due(found) is due


def test_a_clean_point_that_cannot_be_true_is_not_believed() -> None:
    place = Place()
    place.seal([(b"a", b"1")])
    for wrong in (99, -1):
        found = candidate(place.log, wrong, place.log.end, NOW_MS)
        assert found is not None
        assert found.dirty_start == 0


def test_neighbours_are_grouped_while_they_fit() -> None:
    parts = [SegmentFacts(at * 10, at * 10 + 10, size) for at, size in enumerate([3, 3, 5, 9, 0])]
    assert [[one.base for one in group] for group in grouped(parts, 9)] == [[0, 10], [20], [30, 40]]
    far = [SegmentFacts(0, 10, 1), SegmentFacts(10, 2**31, 1), SegmentFacts(2**31, 2**31 + 1, 1)]
    assert [len(group) for group in grouped(far, 99)] == [2, 1]


def test_the_map_is_full_when_its_memory_is_used() -> None:
    keys = KeyMap(1_000)
    keys.learn([b"a"], [1])
    assert not keys.is_full
    keys.learn([b"a"] * 100, list(range(100)))
    assert not keys.is_full
    keys.learn([b"%d" % at for at in range(10)], list(range(10)))
    assert keys.is_full


@pytest.mark.parametrize("seed", range(30))
def test_records_of_any_shape_are_taken_apart(seed: int) -> None:
    """By columns or one by one: as the ordinary reader has them."""
    rng = Random(seed)
    rows, offset = [], 0
    for _ in range(rng.choice([1, 5, 100, 300])):
        offset += rng.choice([1, 1, 1, 3, 200])
        size = rng.choice([5, 5, 5, rng.randint(0, 300)])
        key = rng.choice([None, b"k%03d" % rng.randrange(999), b"k%03d" % rng.randrange(999)])
        value = rng.choice([None, bytes(size), bytes(size), bytes(size)])
        stamp = NOW_MS + rng.choice([0, 1, 70, -70, 10_000])
        rows.append(Record(offset, stamp, key, value, ((("h", b"v"),) if size == 7 else ())))
    view = memoryview(build_batch(rows))
    header = next(iter(iterate_records(view)))
    columns = take_apart(_body(view), len(rows))
    assert columns.keys == [row.key for row in rows]
    assert list(columns.offsets(header.offset)) == [row.offset for row in rows]
    assert b"".join(columns.pieces()) == _body(view)
    assert columns.any_tombstone == any(row.value is None for row in rows)


def _body(view: memoryview) -> bytes:
    return bytes(view[61:])


@pytest.mark.parametrize("seed", range(200))
def test_no_bytes_make_the_reader_of_records_fail_otherwise(seed: int) -> None:
    rng = Random(seed)
    rows = [Record(at, NOW_MS + at, b"key-%d" % at, bytes(20)) for at in range(40)]
    body = bytearray(_body(memoryview(build_batch(rows))))
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    try:
        take_apart(bytes(body), len(rows)).pieces()
    except WireError:
        return


def test_long_keys_are_told_apart_too() -> None:
    place = Place()
    keys = [b"x" * 40 + b"%d" % at for at in range(6)]
    place.seal([(key, b"1") for key in keys], [(keys[0], b"2")])
    place.compact()
    assert sorted(row[0] for row in place.rows()) == [1, 2, 3, 4, 5, 6]
