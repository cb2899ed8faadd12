"""Offsets that compaction took: a replica receives the gaps, whatever its topic's settings say, and
a start with a broker's own settings neither cuts such a log nor takes it for damaged."""

import errno
from collections.abc import Sequence
from random import Random

import pytest

from harness.disks.few_descriptors import FewDescriptors
from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.disks.mortal_disk import MortalDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.index import OffsetIndex
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.node.log.settings import LogSettings
from tidelog.wire.records import iterate_batches, place_batch, read_header

SIZE = len(batch(2, size=100))
SMALL = LogSettings(segment_bytes=3 * SIZE, index_interval_bytes=SIZE)
GAPS = (0, 2, 8, 10, 11_000, 11_002, 11_004, 20_000, 30_000, 30_002)
"""Where each batch of two records begins."""
FAR = 3_000_000_000
"""No segment that begins at 0 can index a batch there."""


class Replica:
    """A follower of one partition; each start knows only a broker's default settings."""

    def __init__(self, settings: LogSettings = SMALL) -> None:
        self.disk = MemoryDisk()
        self.settings = settings
        self.boot = 1
        self.logs = self.open()
        self.log = self.logs.create("t", 0, TOPIC_ID, settings)

    @property
    def place(self) -> MemoryDirectory:
        return self.disk.directory().directory("t-0")

    def open(self) -> LogDirectory:
        return open_logs(self.disk.directory(), boot_id=f"boot-{self.boot}")

    def take(self, *bases: int, epoch: int = 0) -> None:
        for base in bases:
            view = batch(2, size=100)
            place_batch(view, 0, base_offset=base, leader_epoch=epoch)
            self.log.append_as_follower(NOW, NOW_MS, view)

    def flush(self) -> None:
        """As a broker does, with the checkpoint."""
        flush(self.log)
        checkpoint = self.logs.checkpoint({})
        checkpoint.write()
        self.logs.checkpointed(checkpoint)
        self.logs.sync()

    def kill(self) -> None:
        self.disk.kill()

    def lose_power(self) -> None:
        """The files stay as they are: a test damages them itself."""
        self.disk.kill()
        self.boot += 1

    def stop(self) -> None:
        self.logs.close_clean({self.log.name.key: self.log.end})
        self.disk.kill()

    def restart(self) -> Log:
        self.logs = self.open()
        assert self.logs.offline == {}
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)
        return self.log

    def refusal(self) -> str:
        """Why the log cannot be used."""
        self.logs = self.open()
        (reason,) = self.logs.offline.values()
        return str(reason)

    def segments(self) -> list[int]:
        return [int(name[:20]) for name in self.place.names() if name.endswith(".log")]

    def content(self, base: int) -> bytearray:
        return self.place.content(f"{base:020d}.log")


def bases_of(log: Log) -> list[int]:
    """The base offset of every batch that a reader gets."""
    found: list[int] = []
    at = log.start
    while (piece := log.read(at, 1000, log.end, min_one=True)) is not None:
        for header, _ in iterate_batches(piece.file.read(piece.position, piece.size)):
            found.append(header.base_offset)
            at = header.next_offset
    return found


@pytest.mark.parametrize("settings", [LogSettings(), SMALL, LogSettings(compact=True)])
def test_a_follower_takes_any_gap_whatever_its_topic_asks_for_now(settings: LogSettings) -> None:
    replica = Replica(settings)
    replica.take(*GAPS)
    assert replica.log.end == 30_004
    assert bases_of(replica.log) == list(GAPS)


def test_a_follower_takes_no_batch_below_its_end() -> None:
    replica = Replica()
    replica.take(0, 8)
    with pytest.raises(CorruptError, match="offset 9 instead of 10"):
        replica.take(9)


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop"])
@pytest.mark.parametrize("flushed", [0, 1, 4, 5, 9, 10])
@pytest.mark.parametrize("settings", [LogSettings(), SMALL])
def test_a_start_finds_all_of_a_log_that_received_gaps(
    end: str, flushed: int, settings: LogSettings
) -> None:
    replica = Replica(settings)
    replica.take(*GAPS[:flushed])
    if flushed:
        replica.flush()
    replica.take(*GAPS[flushed:])
    getattr(replica, end)()
    log = replica.restart()
    assert (log.start, log.end) == (0, 30_004)
    assert bases_of(log) == list(GAPS)
    replica.take(30_010)
    assert bases_of(log)[-1] == 30_010


def test_segments_of_a_log_with_gaps_adjoin() -> None:
    """A start tells from this that none of them is missing, nor its end."""
    replica = Replica()
    replica.take(*GAPS)
    assert replica.segments() == [0, 10, 11_004, 30_002]


@pytest.mark.parametrize("end", ["kill", "lose_power"])
def test_a_flushed_batch_that_is_missing_at_the_end_is_damage(end: str) -> None:
    replica = Replica()
    replica.take(*GAPS)
    replica.flush()
    last = replica.segments()[-1]
    getattr(replica, end)()
    del replica.content(last)[-SIZE:]
    assert "the log is too short" in replica.refusal()


def test_a_flushed_batch_that_is_missing_before_a_segment_is_damage() -> None:
    replica = Replica()
    replica.take(*GAPS[:4])
    first, second = replica.segments()
    replica.flush()
    replica.kill()
    del replica.content(first)[-SIZE:]
    replica.disk.directory().unlink("recovery-point-offset-checkpoint")
    assert "the segment before it ends at offset" in replica.refusal()
    assert replica.segments() == [first, second]


def test_a_segment_that_a_power_loss_took_from_the_middle_ends_the_log() -> None:
    """A gap between two segments is no gap that a leader sent."""
    replica = Replica()
    replica.take(*GAPS)
    first, second, *_ = replica.segments()
    replica.lose_power()
    replica.place.unlink(f"{second:020d}.log")
    log = replica.restart()
    assert replica.segments() == [first]
    assert bases_of(log) == [at for at in GAPS if at < second]


@pytest.mark.parametrize("torn", [1, 40, 61, SIZE - 1])
def test_a_torn_batch_behind_a_gap_is_cut(torn: int) -> None:
    replica = Replica()
    replica.take(0, 8)
    replica.kill()
    view = batch(2, size=100)
    place_batch(view, 0, base_offset=40, leader_epoch=0)
    replica.content(0).extend(view[:torn])
    log = replica.restart()
    assert (log.end, bases_of(log)) == (10, [0, 8])


@pytest.mark.parametrize("wrong", [1 << 10, 1 << 31, 1 << 40])
@pytest.mark.parametrize("end", ["kill", "lose_power"])
def test_a_batch_whose_offset_became_larger_is_damage_and_what_follows_is_not_cut(
    end: str, wrong: int
) -> None:
    """Offsets lie outside the checksum: the one that follows shows which of them cannot be."""
    replica = Replica(LogSettings(compact=True))
    replica.take(0, 2, 4, 6)
    replica.flush()
    replica.logs.note_cleaned(replica.log.name.key, 0)
    replica.flush()
    getattr(replica, end)()
    content = replica.content(0)
    content[SIZE : SIZE + 8] = wrong.to_bytes(8, "big")
    replica.refusal()
    assert len(replica.content(0)) == 4 * SIZE


@pytest.mark.parametrize("end", ["kill", "lose_power"])
def test_an_offset_no_segment_can_hold_is_damage_or_cut_but_no_crash(end: str) -> None:
    replica = Replica()
    replica.take(0, 2)
    getattr(replica, end)()
    replica.content(0)[SIZE : SIZE + 8] = (1 << 40).to_bytes(8, "big")
    if end == "kill":
        assert "offset 1099511627776" in replica.refusal()
    else:
        assert bases_of(replica.restart()) == [0]


# -- beyond what a segment can index


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop", "flush"])
@pytest.mark.parametrize("before", [(), (0, 2), (0, 2, 4, 6)])
def test_a_batch_that_lies_too_far_for_an_empty_segment_gets_one_of_its_own(
    end: str, before: Sequence[int]
) -> None:
    replica = Replica()
    replica.take(*before)
    after = (FAR, FAR + 2, FAR + 4, FAR + 6, 3 * FAR, 3 * FAR + 2)
    replica.take(*after)
    assert bases_of(replica.log) == [*before, *after]
    for base in replica.segments():
        index = OffsetIndex(replica.place, f"{base:020d}.index")
        assert all(0 <= offset <= RELATIVE_OFFSET_MAX for offset in index.offsets)
    getattr(replica, end)()
    if end == "flush":
        replica.lose_power()
    log = replica.restart()
    assert (log.start, log.end) == (0, 3 * FAR + 4)
    assert log.missing_from is None
    assert bases_of(log) == [*before, *after]
    assert log.offset_for_timestamp(NOW_MS, log.end) is not None


def test_what_lies_before_a_far_gap_is_on_stable_storage_before_the_segment_behind_it() -> None:
    """Else a power loss could take records there that would look like a part of the gap."""
    replica = Replica()
    replica.take(0, 2, FAR)
    replica.disk.lose_power()
    replica.boot += 1
    assert bases_of(replica.restart())[:2] == [0, 2]


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("create", errno.ENOSPC),
        ("replace", errno.ENOSPC),
        ("append", errno.ENOSPC),
        ("sync", errno.EMFILE),
    ],
)
@pytest.mark.parametrize("before", [(), (0, 2)])
def test_a_far_batch_that_finds_no_room_leaves_the_log_as_it_was(
    monkeypatch: pytest.MonkeyPatch, before: Sequence[int], operation: str, code: int
) -> None:
    """What comes next may be another leader's batch, which lies before the gap."""
    replica = Replica()
    replica.take(*before)
    replica.flush()
    replica.log.roll(NOW_MS)
    directory = replica.log.directory
    if operation == "sync":
        lack = FewDescriptors(1, directory.sync)
        monkeypatch.setattr(directory, "sync", lack)
    else:
        replica.disk.failing[operation] = code
    with pytest.raises(OSError, match=r"sick|open files"):
        replica.take(FAR)
    replica.disk.failing.clear()
    monkeypatch.undo()
    end = replica.log.end
    assert replica.log.segments[-1].base == end
    replica.take(end, end + 2, FAR)
    replica.kill()
    assert bases_of(replica.restart()) == [*before, end, end + 2, FAR]


def test_no_power_loss_brings_back_the_segment_of_a_far_batch_that_found_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log would seem to end behind the gap, and never ask for what is written into it."""
    for draw in range(60):
        disk = MortalDisk()
        log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, SMALL)
        take(log, 0, 2)
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "append", no_room)
            with pytest.raises(OSError, match="no room"):
                take(log, FAR)
        take(log, 4, 6)
        disk.lose_power(Random(draw))
        found = open_logs(disk.directory(), boot_id="boot-2").log("t", 0)
        assert found is not None
        assert 4 <= found.end <= 8


def no_room(*_batch: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def take(log: Log, *bases: int) -> None:
    for base in bases:
        view = batch(2, size=100)
        place_batch(view, 0, base_offset=base, leader_epoch=0)
        log.append_as_follower(NOW, NOW_MS, view)


def test_a_far_batch_that_finds_no_room_tells_that_though_its_segment_cannot_be_removed() -> None:
    """What failed first decides what becomes of the log directory."""
    replica = Replica()
    replica.take(0)
    replica.log.roll(NOW_MS)
    replica.disk.failing |= {"replace": errno.ENOSPC, "unlink": errno.EIO}
    with pytest.raises(OSError, match="sick") as told:
        replica.take(FAR)
    assert told.value.errno == errno.ENOSPC
    replica.disk.failing.clear()
    replica.take(2)
    assert bases_of(replica.log) == [0, 2]


def test_an_index_has_no_entry_for_what_lies_beyond_two_gib() -> None:
    """Compaction may make a segment a little larger than it was."""
    disk = MemoryDisk()
    segment = Segment(disk.directory(), 0, end=0, size=0)
    header = read_header(batch(2))
    for at, position in enumerate([0, 1 << 30, (1 << 31) - 1, 1 << 31]):
        segment.note(position, 10_000, header, 2 * at, 100)
    assert list(segment.offsets.positions) == [1 << 30, (1 << 31) - 1]
    assert segment.locate(6) == 1 << 31


# -- cuts


@pytest.mark.parametrize("offset", range(2, 9))
def test_a_cut_inside_a_gap_ends_the_log_before_the_gap(offset: int) -> None:
    """Not where the batch behind the gap began: the leader may have other records there."""
    replica = Replica()
    replica.take(0, 8)
    assert replica.log.truncate_to(offset) == replica.log.end == 2
    replica.flush()
    replica.kill()
    assert replica.restart().end == 2
    replica.take(2, 5)
    assert bases_of(replica.log) == [0, 2, 5]


@pytest.mark.parametrize("offset", [2, 3, FAR - 1])
def test_a_cut_before_a_far_segment_ends_the_log_before_the_gap(offset: int) -> None:
    replica = Replica()
    replica.take(0, FAR)
    assert replica.segments() == [0, 2, FAR]
    replica.stop()
    assert replica.restart().truncate_to(offset) == 2
    replica.take(4)
    assert bases_of(replica.log) == [0, 4]


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop"])
def test_segments_adjoin_after_a_cut_inside_a_gap(end: str) -> None:
    replica = Replica()
    replica.take(0, 8)
    replica.log.truncate_to(5)
    replica.log.roll(NOW_MS)
    replica.take(5, 7)
    replica.flush()
    getattr(replica, end)()
    assert bases_of(replica.restart()) == [0, 5, 7]


def test_a_leader_goes_on_behind_a_gap() -> None:
    replica = Replica()
    replica.take(0, 8)
    assert produce(replica.log, batch(2)).first_offset == 10
    assert RELATIVE_OFFSET_MAX + 1 == 1 << 31
    replica.kill()
    assert replica.restart().end == 12
    assert replica.logs.last_stop is LastStop.KILLED


def test_a_compacted_segment_with_a_wrong_offset_takes_no_other_segment_along() -> None:
    """A start removes what a finished pass of compaction replaced, up to the new segment's end."""
    replica = Replica()
    replica.take(*range(0, 20, 2))
    replica.kill()
    segments = replica.segments()
    content = bytes(replica.content(0))
    swap = replica.place.open(f"{0:020d}.log.swap")
    swap.append((content[:SIZE] + (1 << 20).to_bytes(8, "big") + content[SIZE + 8 :],))
    assert "instead of" in replica.refusal()
    assert replica.segments() == segments
