"""Batches and settings that a pass cannot treat as usual: it goes on, and no value is lost."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, batches_of, compact
from harness.logs.odd_batches import NOISE, UNREADABLE, raw_batch, record
from tidelog.node.log.cleaning_filter import with_horizon
from tidelog.node.log.cleaning_records import take_apart
from tidelog.node.log.settings import LogSettings
from tidelog.wire.records import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    iterate_batches,
    iterate_records,
    place_batch,
    read_header,
)

LONG_MAX = 2**63 - 1
DAY_MS = 86_400_000

Rows = list[tuple[bytes | None, bytes | None]]


class Place:
    """A compacted log on a disk in memory."""

    def __init__(self, **settings: int) -> None:
        self.settings = LogSettings(compact=True, delete=False, **settings)  # type: ignore[arg-type] # by name
        self.logs = open_logs(MemoryDisk().directory(), settings=self.settings)
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)

    def add(self, batch: bytearray) -> None:
        view = memoryview(bytearray(batch))
        place_batch(view, 0, base_offset=self.log.end, leader_epoch=0)
        self.log.append_as_follower(NOW, NOW_MS, view)

    def seal(self, *batches: Rows) -> None:
        for rows in batches:
            append(self.log, rows)
        self.log.roll(NOW_MS)
        flush(self.log)

    def compact(self, now_ms: int = NOW_MS) -> None:
        compact(self.logs, self.log, now_ms)

    def bytes_at(self, offset: int) -> bytes:
        """The batch that holds it, but for its place in the log."""
        piece = self.log.read(offset, 1 << 30, self.log.end, min_one=True)
        assert piece is not None
        content = piece.file.read(piece.position, piece.size)
        header, batch = next(iterate_batches(content))
        assert header.base_offset == offset
        return bytes(batch[17:])

    def keys(self, *unreadable: int) -> list[tuple[bytes | None, bytes | None]]:
        """Of all records but those of batches that cannot be read."""
        found: Rows = []
        at = self.log.start
        while (piece := self.log.read(at, 1 << 30, self.log.end, min_one=True)) is not None:
            content = piece.file.read(piece.position, piece.size)
            for header, batch in iterate_batches(content):
                at = header.next_offset
                if header.base_offset not in unreadable:
                    found += rows_in(batch)
        return found


def rows_in(batch: memoryview) -> Rows:
    return [(row.key, row.value) for row in iterate_records(batch)]


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_batch_that_cannot_be_read_stays_as_it_is(kind: str) -> None:
    place = Place()
    place.seal([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")])
    bad = place.log.end
    place.add(UNREADABLE[kind])
    place.seal([(b"b", b"2"), (b"c", b"1")])
    place.compact()
    assert place.bytes_at(bad) == bytes(UNREADABLE[kind][17:])
    assert place.keys(bad) == [(b"a", b"2"), (b"b", b"2"), (b"c", b"1")]
    assert place.logs.cleaned(place.log.name.key) == place.log.end
    place.seal([(b"c", b"2")])
    place.compact()
    assert place.bytes_at(bad) == bytes(UNREADABLE[kind][17:])
    assert place.keys(bad) == [(b"a", b"2"), (b"b", b"2"), (b"c", b"2")]


def test_tombstones_behind_an_unreadable_batch_stay() -> None:
    """It may hold an older value of that key, which must not come back to life."""
    place = Place(delete_retention_ms=0)
    place.seal([(b"before", None)])
    bad = place.log.end
    place.add(UNREADABLE["noise"])
    place.seal([(b"behind", None)])
    for number in range(4):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
    assert place.keys(bad) == [(b"behind", None), (b"z", b"3")]
    place.log.advance_start(bad + 3)
    for number in range(4, 7):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
    assert place.keys() == [(b"z", b"6")]


def test_an_unreadable_control_batch_stays() -> None:
    place = Place(delete_retention_ms=0)
    marker = raw_batch(NOISE, count=1, attributes=0b110000)
    place.add(marker)
    for number in range(3):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
    assert place.bytes_at(0) == bytes(marker[17:])


def test_tombstones_stay_for_good_under_the_longest_retention() -> None:
    place = Place(delete_retention_ms=LONG_MAX)
    place.seal([(b"a", b"1"), (b"b", b"1")], [(b"a", None)])
    for number in range(3):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * 1_000 * DAY_MS)
        assert place.keys() == [(b"b", b"1"), (b"a", None), (b"z", b"%d" % number)]


def test_a_shorter_retention_counts_for_tombstones_that_were_to_stay_for_good() -> None:
    place = Place(delete_retention_ms=LONG_MAX)
    place.seal([(b"a", None)], [(b"b", b"1")])
    place.compact()
    place.log.settings = LogSettings(compact=True, delete=False, delete_retention_ms=DAY_MS)
    for number in range(2):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
    assert place.keys() == [(b"b", b"1"), (b"z", b"1")]


@pytest.mark.parametrize("retention_ms", [LONG_MAX // 2, LONG_MAX - NOW_MS])
def test_a_delete_horizon_in_the_far_future_leaves_readable_records(retention_ms: int) -> None:
    place = Place(delete_retention_ms=retention_ms)
    place.seal([(b"a", b"1")], [(b"a", None)])
    place.compact()
    header, rows = batches_of(place.log)[0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert [(row.key, row.timestamp) for row in rows] == [(b"a", NOW_MS)]
    place.seal([(b"b", b"1")])
    place.compact(NOW_MS + DAY_MS)
    assert place.keys() == [(b"a", None), (b"b", b"1")]


@pytest.mark.parametrize("stamp", [-(2**63), 2**63 - 1, -(2**68), 2**68])
def test_a_tombstone_whose_time_no_header_can_hold_stays(stamp: int) -> None:
    """Its delete horizon would push its timestamp out of 64 bits."""
    place = Place(delete_retention_ms=0)
    body = record(0, b"a", None, stamp=stamp) + record(1, b"b", b"1", stamp=stamp)
    place.add(raw_batch(body, count=2, base_timestamp=NOW_MS - DAY_MS))
    place.seal([(b"b", b"2")])
    for number in range(3):
        place.seal([(b"z", b"%d" % number)])
        place.compact(NOW_MS + number * DAY_MS)
    found = place.keys()
    assert found[-2:] == [(b"b", b"2"), (b"z", b"2")]
    assert (b"b", b"1") not in found


def test_a_batch_of_tombstones_never_outgrows_what_can_be_read() -> None:
    """A delete horizon makes each record longer; a batch at the limit does without."""
    body = b"".join(record(at, b"%d" % at, None) for at in range(50))
    batch = raw_batch(body, count=50)
    header, pieces = read_header(batch), take_apart(body, 50).pieces()
    limit = HEADER_BYTES + len(body)
    assert with_horizon(header, pieces, NOW_MS + DAY_MS, limit) is None
    assert with_horizon(header, pieces, NOW_MS + DAY_MS, 2 * limit) is not None
