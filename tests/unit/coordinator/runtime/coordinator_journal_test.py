"""The metadata log on disk: what is written stays, what is damaged is noticed, snapshots help."""

import errno
from random import Random

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.disks.platter import Inode
from harness.logs.batches import NOW_MS
from harness.machines.controllers import ONE, Controlled, replayed, topic
from tidelog.coordinator.controller.front import Append, SaveSnapshot
from tidelog.coordinator.runtime.flushed import flushed_end
from tidelog.coordinator.runtime.journal import Journal, Life, Loaded
from tidelog.coordinator.runtime.snapshots import (
    SnapshotName,
    encode_batch,
    read_snapshot,
    snapshot_names,
    write_snapshot,
)
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import NO_OFFSET, Epoch, Incarnation, Offset, Uuid
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LONG_MAX, LogSettings
from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.wire.metadata_records import MetadataRecord, SnapshotEnded, TopicDeleted
from tidelog.wire.records import iterate_batches

HERE = Life("boot-1", 0, Incarnation(1))
AFTER_POWER_LOSS = Life("boot-2", 0, Incarnation(2))
SMALL = LogSettings(segment_bytes=4096, segment_ms=LONG_MAX)
SEGMENT = "00000000000000000000.log"


class Disk:
    """A disk with a coordinator's directory, and the records that were promised to be on it."""

    def __init__(self) -> None:
        self.memory = MemoryDisk()
        self.controlled = Controlled(ONE)
        self.promised = 0

    def journal(self, life: Life = HERE) -> Journal:
        return Journal(self.memory.directory("coordinator"), life, SMALL)

    def load(self, life: Life = HERE) -> tuple[Journal, Loaded]:
        journal = self.journal(life)
        return journal, journal.load()

    def write(self, journal: Journal, *names: str) -> None:
        """Make topics, and write all records that are not there yet as one round."""
        for name in names:
            self.controlled.create(topic(name, 2))
        for append in self.appends():
            journal.write([append], 1)
        self.promised = len(self.controlled.log)

    def appends(self) -> list[Append]:
        records = tuple(self.controlled.log[self.promised :])
        return [Append(1, Offset(self.promised), records)] if records else []

    def save(self, journal: Journal) -> None:
        image = replayed(self.controlled.log[: self.promised])
        journal.save(SaveSnapshot(image.offset, Epoch(1), tuple(snapshot(image))))

    @property
    def segment(self) -> bytearray:
        return self.log.content(SEGMENT)

    @property
    def log(self) -> MemoryDirectory:
        return self.memory.directory("coordinator").directory("__cluster_metadata-0")

    def newest_snapshot(self) -> bytearray:
        return self.log.content(snapshot_names(self.log)[0].file)


@pytest.fixture
def disk() -> Disk:
    disk = Disk()
    journal, loaded = disk.load()
    assert loaded.image == MetadataImage()
    assert loaded.last_stop is LastStop.NEVER_RAN
    disk.write(journal, "a")
    disk.write(journal, "b", "c")
    return disk


def test_what_was_written_is_there_after_a_clean_stop(disk: Disk) -> None:
    journal, _ = disk.load()
    journal.close()
    _, loaded = disk.load()
    assert loaded.last_stop is LastStop.CLEAN
    assert loaded.image == loaded.feed.image == disk.controlled.image


def test_what_was_written_is_there_after_a_kill(disk: Disk) -> None:
    disk.memory.kill()
    _, loaded = disk.load()
    assert loaded.last_stop is LastStop.KILLED
    assert loaded.image == disk.controlled.image


@pytest.mark.parametrize("seed", range(20))
def test_what_was_written_is_there_after_a_power_loss(disk: Disk, seed: int) -> None:
    disk.memory.lose_power(Random(seed))
    _, loaded = disk.load(AFTER_POWER_LOSS)
    assert loaded.image == disk.controlled.image


@pytest.mark.parametrize("seed", range(20))
def test_of_what_was_not_forced_out_a_power_loss_leaves_whole_batches_or_nothing(
    disk: Disk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = disk.load()
    disk.controlled.create(topic("d", 200))
    with monkeypatch.context() as broken:
        broken.setattr(Inode, "sync", _fail)
        broken.setattr(journal, "_forget", lambda _: None)  # killed before it could
        with pytest.raises(OSError, match="worn out"):
            journal.write(disk.appends(), 1)
    disk.memory.lose_power(Random(seed))
    _, loaded = disk.load(AFTER_POWER_LOSS)
    whole = (disk.promised, len(disk.controlled.log))
    assert loaded.image in [replayed(disk.controlled.log[:end]) for end in whole]


def test_a_sealed_segment_that_a_killed_life_did_not_force_out_is_forced_out_by_the_next(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next life decides on its records, so a power loss must not take them after that."""
    journal, _ = disk.load()
    with monkeypatch.context() as killed:
        killed.setattr(journal, "_flush", lambda: None)  # it was killed before
        for name in "defghi":
            disk.write(journal, name + "x" * 200)
            disk.write(journal, *(f"{name}{number}" + "x" * 200 for number in range(6)))
    sealed = [one for one in disk.log.names() if one.endswith(".log")]
    assert len(sealed) > 2
    disk.memory.kill()
    journal, loaded = disk.load()
    assert loaded.image == disk.controlled.image
    disk.write(journal, "last")
    disk.memory.lose_power(None)
    _, loaded = disk.load(AFTER_POWER_LOSS)
    assert loaded.image == disk.controlled.image


def _fail(_: object) -> None:
    raise OSError(errno.EIO, "worn out")


def test_a_torn_tail_is_cut_at_the_last_whole_batch(disk: Disk) -> None:
    journal, _ = disk.load()
    before = disk.controlled.image.offset
    disk.write(journal, "d")
    del disk.segment[-7:]
    _, loaded = disk.load()
    assert loaded.cut is not None
    assert loaded.image.offset == before
    assert "d" not in loaded.image.names


def test_after_a_cut_the_log_goes_on(disk: Disk) -> None:
    disk.segment.extend(b"\0" * 100)
    journal, loaded = disk.load()
    assert loaded.cut is not None
    disk.write(journal, "d")
    _, loaded = disk.load()
    assert loaded.image == disk.controlled.image


def test_damage_with_good_batches_behind_it_is_no_torn_tail(disk: Disk) -> None:
    disk.segment[100] ^= 1
    with pytest.raises(CannotStartError, match=r"metadata log is damaged.*restore .* --data"):
        disk.load()


@pytest.mark.parametrize("life", [HERE, AFTER_POWER_LOSS], ids=["kill", "power loss"])
@pytest.mark.parametrize("position", [8, 70, 100])
def test_damage_below_what_was_forced_out_stops_the_start(
    disk: Disk, position: int, life: Life
) -> None:
    disk.segment[position] ^= 1
    with pytest.raises(CannotStartError, match="damaged"):
        disk.load(life)


def test_a_segment_that_recovery_trusts_is_held_against_its_checksums(disk: Disk) -> None:
    journal, _ = disk.load()
    for number in range(3):
        disk.write(journal, *(f"{number}-{name}" for name in range(60)))
    content = disk.segment
    content[content.index(b"127.0.0.1")] = ord("9")
    with pytest.raises(CannotStartError, match="wrong checksum"):
        disk.load(AFTER_POWER_LOSS)


def test_what_a_batch_vouches_for_is_where_its_round_began(disk: Disk) -> None:
    journal, _ = disk.load()
    assert flushed_end(disk.log) < disk.promised
    disk.write(journal, "d")
    before = disk.promised
    disk.write(journal, "e")
    assert flushed_end(disk.log) == before
    disk.segment[100] ^= 1
    disk.segment[-1] ^= 1
    assert 0 < flushed_end(disk.log) < before


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_no_batches_vouch_for_nothing(seed: int) -> None:
    directory = MemoryDisk().directory("coordinator")
    directory.make()
    noise = Random(seed).choices(b"\x00\x02\x3d\xff", k=4_000)
    directory.replace(SEGMENT, bytes(noise))
    assert flushed_end(directory) == 0


def test_a_record_that_contradicts_the_ones_before_it_is_damage(disk: Disk) -> None:
    journal, loaded = disk.load()
    offset = Offset(loaded.image.offset + 1)
    journal.write([Append(1, offset, (TopicDeleted(Uuid(b"?" * 16)),))], 1)
    with pytest.raises(CannotStartError, match="makes no sense"):
        disk.load()


@pytest.mark.parametrize("fault", ["full disk", "failed sync"])
def test_of_a_write_that_failed_the_next_life_finds_nothing(
    disk: Disk, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = disk.load()
    before = disk.controlled.image.offset
    disk.controlled.create(topic("d"))
    with monkeypatch.context() as broken:
        if fault == "full disk":
            disk.memory.fail_append_after = 0
        else:
            broken.setattr(Inode, "sync", _fail)
        with pytest.raises(OSError, match=r"full|worn out"):
            journal.write(disk.appends(), 1)
    _, loaded = disk.load()
    assert loaded.image.offset == before


def test_a_snapshot_stands_in_for_the_records_before_it(disk: Disk) -> None:
    journal, _ = disk.load()
    disk.save(journal)
    disk.write(journal, "d")
    _, loaded = disk.load()
    assert loaded.snapshot_offset > NO_OFFSET
    assert loaded.image == loaded.feed.image == disk.controlled.image


def test_the_log_lets_go_of_what_the_older_of_two_snapshots_covers(disk: Disk) -> None:
    journal, _ = disk.load()
    names = []
    for number in range(4):
        disk.write(journal, *(f"{number}-{name}" for name in range(60)))
        disk.save(journal)
        names.append([one.offset for one in snapshot_names(disk.log)])
    assert [len(one) for one in names] == [1, 2, 2, 2]
    assert journal.start == names[-1][-1] + 1
    _, loaded = disk.load()
    assert loaded.image == disk.controlled.image


def test_a_damaged_snapshot_costs_time_not_data(disk: Disk) -> None:
    journal, _ = disk.load()
    disk.save(journal)
    older = disk.promised - 1
    disk.write(journal, "d")
    disk.save(journal)
    disk.newest_snapshot()[200] ^= 1
    _, loaded = disk.load()
    assert len(loaded.damaged_snapshots) == 1
    assert loaded.snapshot_offset == older
    assert loaded.image == disk.controlled.image


def test_a_snapshot_that_still_reads_well_is_held_against_its_checksum(disk: Disk) -> None:
    journal, _ = disk.load()
    disk.save(journal)
    content = disk.newest_snapshot()
    content[content.index(b"127.0.0.1")] = ord("9")
    _, loaded = disk.load()
    assert len(loaded.damaged_snapshots) == 1
    assert loaded.image == disk.controlled.image


def test_of_a_snapshot_that_makes_no_sense_nothing_is_taken(disk: Disk) -> None:
    journal, _ = disk.load()
    records = list(snapshot(disk.controlled.image))[:-1]
    records += [TopicDeleted(Uuid(b"?" * 16)), SnapshotEnded(len(records) + 1)]
    name = SnapshotName(disk.controlled.image.offset, Epoch(1))
    write_snapshot(disk.log, name, records, 0)
    journal.close()
    _, loaded = disk.load()
    assert "makes no sense" in loaded.damaged_snapshots[0]
    assert loaded.image == disk.controlled.image


def test_without_a_whole_snapshot_the_whole_log_is_read(disk: Disk) -> None:
    journal, _ = disk.load()
    disk.save(journal)
    disk.newest_snapshot()[200] ^= 1
    _, loaded = disk.load()
    assert loaded.snapshot_offset == NO_OFFSET
    assert loaded.image == disk.controlled.image


def test_where_no_snapshot_is_whole_and_the_log_begins_later_nothing_starts(disk: Disk) -> None:
    journal, _ = disk.load()
    for number in range(3):
        disk.write(journal, *(f"{number}-{name}" for name in range(60)))
        disk.save(journal)
    for name in snapshot_names(disk.log):
        disk.log.content(name.file)[200] ^= 1
    with pytest.raises(CannotStartError, match="no whole snapshot reaches it"):
        disk.load()


@pytest.mark.parametrize("cut", ["one batch", "all", "half"])
def test_a_snapshot_cut_anywhere_is_damaged(cut: str) -> None:
    directory = MemoryDisk().directory("coordinator")
    directory.make()
    name = SnapshotName(Offset(9), Epoch(1))
    records: list[MetadataRecord] = [TopicDeleted(Uuid(b"a" * 16))] * 1_500
    write_snapshot(directory, name, [*records, SnapshotEnded(1_500)], 0)
    assert len(read_snapshot(directory, name)) == 1_501
    first = len(encode_batch(records[:1_000], base=0, epoch=1, now_ms=0))
    content = directory.content(name.file)
    del content[{"one batch": first, "all": 0, "half": first // 2}[cut] :]
    with pytest.raises(CorruptError):
        read_snapshot(directory, name)


def test_names_that_are_no_snapshots_are_left_alone(disk: Disk) -> None:
    for name in ("1-1.checkpoint", "x.checkpoint", f"{1:020d}-{1:010d}.checkpoint.tmp"):
        disk.log.replace(name, b"x")
    assert snapshot_names(disk.log) == []


def test_a_log_cut_short_after_a_clean_stop_stops_the_start(disk: Disk) -> None:
    """Of whole batches only: nothing but the mark of the stop tells."""
    journal, _ = disk.load()
    journal.close()
    ends = [0]
    for header, _ in iterate_batches(memoryview(bytes(disk.segment))):
        ends.append(ends[-1] + header.size_bytes)
    del disk.segment[ends[-2] :]
    with pytest.raises(CannotStartError, match="ends at offset"):
        disk.load()


def test_a_log_that_went_on_after_its_last_clean_stop_is_not_held_against_it(disk: Disk) -> None:
    journal, _ = disk.load()
    journal.close()
    journal, _ = disk.load()
    disk.write(journal, "z")
    disk.memory.kill()
    _, loaded = disk.load()
    assert loaded.image == disk.controlled.image


@pytest.mark.parametrize("lost", [0, 2, -2, -1])
def test_a_segment_that_is_gone_after_a_clean_stop_stops_the_start(disk: Disk, lost: int) -> None:
    journal, _ = disk.load()
    for name in ("k", "l", "m"):
        disk.write(journal, *(f"{name}{number}" for number in range(40)))
        journal._log.roll(NOW_MS)
    disk.write(journal, "n")
    journal.close()
    segments = [name for name in disk.log.names() if name.endswith(".log")]
    assert len(segments) == 5
    disk.log.unlink(segments[lost])
    with pytest.raises(CannotStartError, match="the metadata log is damaged"):
        disk.load()
