"""What files say of transactions, and what becomes of a log where they cannot be right."""

from collections.abc import Callable

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from harness.logs.compaction import append
from harness.logs.transactions import Writer, aborted, index_files, known_of
from tidelog.kernel.failures import CorruptError
from tidelog.node.log import scan
from tidelog.node.log.cleaner import candidate
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.producer_snapshot import (
    ENDED_COUNTS,
    ENDED_MAGIC,
    decode_snapshot,
    encode_snapshot,
)
from tidelog.node.log.producers import Producers
from tidelog.node.log.settings import LogSettings
from tidelog.wire.crc import crc32c
from tidelog.wire.log_files import Aborted, decode_aborted, encode_aborted
from tidelog.wire.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    EndMarker,
    Origin,
    Record,
    build_batch,
    build_marker,
    place_batch,
    read_header,
    read_marker,
)

SMALL = LogSettings(segment_bytes=600)
FIRST = f"{0:020d}.txnindex"


class Place:
    """One log of several segments on one disk."""

    def __init__(self, settings: LogSettings = SMALL) -> None:
        self.disk = MemoryDisk()
        self.settings = settings
        self.boot = "boot-1"
        self.open()

    def open(self) -> Log:
        top = self.disk.directory()
        self.logs = open_logs(top, settings=self.settings, boot_id=self.boot)
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)
        return self.log

    def stop(self) -> None:
        self.logs.close_clean({})
        self.disk.kill()

    @property
    def index(self) -> bytearray:
        return self.disk.directory().directory("t-0").content(FIRST)


def aborting(log: Log, count: int = 6) -> list[Aborted]:
    """Transactions that are all aborted, one after the other, and one that goes through all."""
    long = Writer(1)
    long.write(log)
    for number in range(count):
        short = Writer(10 + number)
        short.write(log, size=30)
        short.end(log, committed=False)
    long.end(log, committed=False)
    return index_files(log)


# -- an index that is no good


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: content[:-1],
        lambda content: bytes(len(content)),
        lambda content: b"\0\1" + content[2:],
        lambda content: content + encode_aborted([Aborted(70, 1, 90, 91)]),
        lambda content: content[34:] + content[:34],
    ],
)
def test_an_index_that_cannot_be_right_is_made_anew_when_it_is_used(
    harm: Callable[[bytes], bytes],
) -> None:
    place = Place()
    before = aborting(place.log)
    assert len(place.log.segments) > 2
    flush(place.log)
    place.stop()
    assert len(place.index) >= 68
    place.index[:] = harm(bytes(place.index))
    log = place.open()
    assert place.logs.last_stop is LastStop.CLEAN
    assert aborted(log, 1, log.end, 150) == {(1, 0), (10, 1)}
    assert index_files(log) == before
    place.disk.lose_power()
    assert bytes(place.index) == encode_aborted(before)[: len(place.index)], "and it was synced"


def test_a_log_that_was_closed_is_looked_at_where_something_may_be_undecided() -> None:
    place = Place()
    produce(place.log, batch())
    place.stop()
    log = place.open()
    place.disk.looks.clear()
    assert log.last_stable_offset(1) == 1
    assert place.disk.looks == [], "nothing is open in it"
    Writer().write(log)
    place.stop()
    assert place.open().last_stable_offset(2) == 1


def test_before_a_compaction_every_index_is_made_right() -> None:
    """Its worker knows of them alone."""
    place = Place(LogSettings(segment_bytes=600, compact=True, delete=False))
    before = aborting(place.log)
    append(place.log, [(b"k", b"v")])
    flush(place.log)
    place.stop()
    place.index[:] = bytes(len(place.index))
    log = place.open()
    flush(log)
    assert candidate(log, None, log.end, NOW_MS) is not None
    assert index_files(log) == before


def test_a_log_whose_index_found_no_room_is_not_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(LogSettings(segment_bytes=600, compact=True, delete=False))
    log = place.log
    aborting(log)
    flush(log)
    assert candidate(log, None, log.end, NOW_MS) is not None
    note = place.disk.note

    def full(operation: str, name: str) -> None:
        if operation == "append" and name.endswith(".txnindex"):
            raise OSError(28, "disk is full", name)
        note(operation, name)

    with monkeypatch.context() as patched:
        patched.setattr(place.disk, "note", full)
        late = Writer(99)
        late.write(log)
        late.end(log, committed=False)
        flush(log)
        assert candidate(log, None, log.end, NOW_MS) is None
    assert candidate(log, None, log.end, NOW_MS) is not None
    assert index_files(log)[-1].producer_id == 99


def test_entries_are_let_go_of_and_read_again() -> None:
    place = Place()
    before = aborting(place.log, 30)
    for _ in range(2):
        for row in before[:-1]:
            found = aborted(place.log, row.first_offset, row.last_offset, 1)
            assert found == {(1, 0), (row.producer_id, row.first_offset)}
    loaded = [one for one in place.log.segments if one.aborted.entries()]
    assert len(loaded) < len(place.log.segments)


def test_segments_that_nothing_aborted_concerns_are_not_read() -> None:
    place = Place()
    aborting(place.log, 2)
    for _ in range(20):
        produce(place.log, batch(size=300))
    place.stop()
    log = place.open()
    at = log.segments[5].base
    assert aborted(log, at, log.end, 1) == set()
    place.disk.looks.clear()
    assert aborted(log, at, log.end, 1) == set()
    assert not [name for _, name in place.disk.looks if name.endswith(".txnindex")]


# -- markers that are none


def in_place(log: Log, view: memoryview) -> memoryview:
    place_batch(view, 0, base_offset=log.end, leader_epoch=0)
    return view


def control(key: bytes | None, *, producer: int = 7, epoch: int = 0, size: int = 6) -> memoryview:
    origin = Origin(producer, epoch, -1, TRANSACTIONAL_BIT | CONTROL_BIT)
    return memoryview(build_batch([Record(0, NOW_MS, key, bytes(size))], origin=origin))


def emptied(producer: int, epoch: int) -> memoryview:
    """As compaction leaves a marker whose transaction is gone."""
    whole = bytearray(build_marker(EndMarker(producer, epoch, 3, committed=True), NOW_MS))
    bare = whole[:61]
    bare[8:12] = (49).to_bytes(4, "big")
    bare[57:61] = bytes(4)
    bare[17:21] = crc32c(memoryview(bare)[21:]).to_bytes(4, "big")
    return memoryview(bare)


def test_a_marker_that_was_emptied_tells_its_epoch_alone() -> None:
    log = Place().log
    writer = Writer(7)
    writer.write(log, 2)
    for producer, epoch in ((7, 2), (7, 1), (8, 5)):
        log.append_as_follower(NOW, NOW_MS, in_place(log, emptied(producer, epoch)))
    known = known_of(log.producers)
    assert known[7] == (2, 0, [], -1, 0, None)
    assert known[8] == (5, 0, [], -1, -1, None)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0\2", b"\0\0"])
@pytest.mark.parametrize("producer", [7, -1])
def test_what_is_no_end_of_a_transaction_ends_none(key: bytes | None, producer: int) -> None:
    log = Place().log
    Writer(7).write(log)
    view = control(key, producer=producer)
    assert read_marker(read_header(view), view) is None
    log.append_as_follower(NOW, NOW_MS, in_place(log, view))
    known = log.producers.get(7)
    assert known is not None
    assert (known.txn_start, len(log.producers)) == (0, 1)


def test_a_marker_without_its_coordinator_s_epoch_ends_its_transaction() -> None:
    view = control(b"\0\0\0\1", size=2)
    assert read_marker(read_header(view), view) == EndMarker(7, 0, -1, committed=True)


def test_what_cannot_be_read_is_no_marker() -> None:
    whole = build_marker(EndMarker(7, 0, 3, committed=True), NOW_MS)
    whole[61] = 0x7E
    view = memoryview(whole)
    assert read_marker(read_header(view), view) is None


def test_a_start_passes_over_a_control_batch_that_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(LogSettings())
    Writer(7).write(place.log)
    view = control(b"\0\0\0\1", size=5_000)
    place.log.append_as_follower(NOW, NOW_MS, in_place(place.log, view))
    Writer(8).write(place.log)
    place.disk.kill()
    monkeypatch.setattr(scan, "RECOVERY_CHUNK_BYTES", 512)
    log = place.open()
    assert (log.end, sorted(known_of(log.producers))) == (3, [7, 8])


def test_a_start_reads_markers_that_lie_across_what_it_reads_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(LogSettings())
    before = aborting(place.log, 20)
    place.disk.kill()
    monkeypatch.setattr(scan, "RECOVERY_CHUNK_BYTES", 128)
    assert index_files(place.open()) == before


# -- snapshots


def sealed(body: bytes) -> bytes:
    return (1).to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("counts", [(-1, 0), (0, -1), (1, 0), (0, 1)])
def test_a_snapshot_that_tells_of_more_ends_than_it_has_is_none(counts: tuple[int, int]) -> None:
    tail = ENDED_MAGIC + ENDED_COUNTS.pack(*counts)
    with pytest.raises(CorruptError):
        decode_snapshot(sealed(bytes(4) + tail), place="x")


def test_markers_of_nobody_are_left_out() -> None:
    log = Place().log
    Writer().end(log, committed=True)
    content = encode_snapshot(log.producers)
    tail = content[content.index(ENDED_MAGIC) :]
    assert len(decode_snapshot(sealed(bytes(4) + tail), place="x")) == 0


def test_a_snapshot_holds_what_is_open_and_what_has_ended() -> None:
    log = Place().log
    aborting(log)
    Writer(5).write(log)
    again = decode_snapshot(encode_snapshot(log.producers), place="x")
    assert known_of(again) == known_of(log.producers)
    assert encode_snapshot(again) == encode_snapshot(log.producers)
    assert list(again.unstable.open) == list(log.producers.unstable.open)
    assert again.unstable.ended == log.producers.unstable.ended


def test_an_empty_state_needs_no_place_for_transactions() -> None:
    assert ENDED_MAGIC not in encode_snapshot(Producers())


def test_an_index_of_another_version_is_none_of_ours() -> None:
    content = bytearray(encode_aborted([Aborted(0, 7, 2, 3)]))
    content[1] = 1
    with pytest.raises(CorruptError, match="no index of aborted"):
        decode_aborted(bytes(content), place="x")
