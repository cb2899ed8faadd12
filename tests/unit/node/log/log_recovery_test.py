"""What a start makes of damaged files: cut, rebuild, or refuse with the place and the reason."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import (
    NOW,
    NOW_MS,
    TOPIC_ID,
    batch,
    by_time,
    of_largest_time,
    open_logs,
    produce,
    values_of,
)
from harness.logs.one_log import FIRST, LAST, SECOND, SIZE, Broker
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.marks import LastStop
from tidelog.node.log.recovery import Expected, recover
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.records import place_batch


def test_after_a_kill_everything_written_is_there() -> None:
    broker = Broker()
    broker.kill()
    log = broker.restart()
    assert broker.logs.last_stop is LastStop.KILLED
    assert values_of(log) == list(range(24))
    assert [row.cut for row in broker.logs.recovered] == [None]
    assert produce(log, batch(2, producer=(7, 0, 22))).duplicate
    assert by_time(log, NOW_MS + 9, 24) == (NOW_MS + 9, 17, 0)


@pytest.mark.parametrize("size", [1, 40, 61, 62, SIZE - 1])
def test_a_torn_tail_is_cut_at_the_last_good_batch(size: int) -> None:
    broker = Broker()
    broker.kill()
    torn = bytearray(batch(2, size=100))
    torn[:8] = (24).to_bytes(8, "big")
    broker.place.content(LAST).extend(torn[:size])
    log = broker.restart()
    assert values_of(log) == list(range(24))
    (recovered,) = broker.logs.recovered
    assert recovered.cut is not None
    assert (recovered.cut.offset, recovered.cut.bytes_cut) == (24, size)
    assert broker.place.size(LAST) == 2 * SIZE


def test_a_torn_first_batch_leaves_an_empty_log() -> None:
    broker = Broker(1)
    broker.kill()
    del broker.place.content(FIRST)[50:]
    log = broker.restart()
    assert (log.start, log.end) == (0, 0)
    assert produce(log, batch()).first_offset == 0


Harm = Callable[[bytearray], None]


def flip(at: int) -> Harm:
    def harm(content: bytearray) -> None:
        content[at] ^= 0x40

    return harm


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (flip(SIZE + 100), "wrong checksum, and good batches follow"),
        (flip(SIZE + 16), "magic"),
        (flip(SIZE + 8), "cut short"),
        (flip(SIZE + 23), "makes no sense|offset|checksum|cut short"),
        (flip(SIZE + 7), "offset 4 instead of 68"),
        (flip(12), "leader epoch 0 after 1073741824"),
    ],
)
def test_after_a_kill_a_bad_batch_with_good_ones_behind_it_is_damage(harm: Harm, why: str) -> None:
    broker = Broker(5)
    broker.kill()
    harm(broker.place.content(FIRST))
    before = bytes(broker.place.content(FIRST))
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert "and good batches follow" in str(refusal)
    with pytest.raises(CorruptError, match=why):
        broker.logs.log("t", 0)
    assert broker.place.content(FIRST) == before, "damage is left for whoever can repair it"


def test_after_a_kill_a_bad_batch_with_segments_behind_it_is_damage() -> None:
    broker = Broker()
    broker.kill()
    flip(5 * SIZE - 1)(broker.place.content(FIRST))
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert FIRST in str(refusal)


def test_after_a_power_loss_the_log_is_cut_at_the_first_bad_batch() -> None:
    broker = Broker(12, flushed=6)
    broker.lose_power()
    flip(3 * SIZE)(broker.place.content(SECOND))
    log = broker.restart()
    assert broker.logs.last_stop is LastStop.POWER_LOSS
    assert values_of(log) == list(range(16))
    assert LAST not in broker.place.names()
    assert produce(log, batch(2, producer=(7, 0, 14))).duplicate
    assert not produce(log, batch(2, producer=(7, 0, 16))).duplicate


@pytest.mark.parametrize("power_lost", [True, False])
def test_a_bad_batch_below_the_recovery_point_is_damage_in_every_case(*, power_lost: bool) -> None:
    broker = Broker(8, flushed=7)
    broker.lose_power() if power_lost else broker.kill()
    flip(SIZE + 70)(broker.place.content(SECOND))
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert "was flushed" in str(refusal)


def test_a_log_shorter_than_its_recovery_point_is_damage() -> None:
    broker = Broker(8, flushed=8)
    broker.lose_power()
    del broker.place.content(SECOND)[2 * SIZE :]
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert "too short" in str(refusal)


def test_what_is_below_the_recovery_point_is_not_read_again() -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    broker.restart()
    (recovered,) = broker.logs.recovered
    assert recovered.bytes_scanned == 2 * SIZE


def test_a_missing_segment_is_damage_after_a_kill_and_a_cut_after_a_power_loss() -> None:
    broker = Broker()
    broker.kill()
    broker.place.unlink(SECOND)
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert "the segment before it ends at offset 10" in str(refusal)
    broker.lose_power()
    assert values_of(broker.restart()) == list(range(10))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "content",
    [b"", b"x", bytes(24), bytes(range(48)), b"\xff" * 24, bytes(11) + b"\x01" + bytes(12)],
)
def test_any_index_file_that_is_no_good_is_made_anew(suffix: str, content: bytes) -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    for base in (0, 10):
        broker.place.content(f"{base:020d}{suffix}")[:] = content
    log = broker.restart()
    assert values_of(log) == list(range(24))
    assert by_time(log, NOW_MS + 3, 24) == (NOW_MS + 3, 5, 0)
    assert of_largest_time(log, 10) == (NOW_MS + 5, 9, 0)
    if content:
        assert broker.place.content(FIRST.replace(".log", suffix)) != content


def test_missing_index_files_are_made_anew() -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    for name in broker.place.names():
        if name.endswith("index"):
            broker.place.unlink(name)
    log = broker.restart()
    assert by_time(log, NOW_MS + 3, 24) == (NOW_MS + 3, 5, 0)


def test_a_segment_that_rots_while_it_is_trusted_is_found_when_read() -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    log = broker.restart()
    broker.place.content(FIRST)[SIZE + 16] = 9
    for name in broker.place.names():
        if name.endswith("index"):
            broker.place.content(name)[:] = b"x"
    for _ in range(2):
        with pytest.raises(CorruptError, match=f"at byte {SIZE}: magic 9"):
            log.read(5, 1000, 24, min_one=True)
    assert log.read(12, 10_000, 24, min_one=True) is not None


def test_a_truncated_segment_is_found_when_read() -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    log = broker.restart()
    log.read(3, 1000, 24, min_one=True)
    del broker.place.content(FIRST)[30:]
    with pytest.raises(CorruptError, match="too short"):
        log.read(1, 1000, 24, min_one=True)


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n1\n9 9\n9 9\n"])
def test_a_bad_epoch_list_is_made_from_the_batches(content: bytes) -> None:
    broker = Broker(6, flushed=6)
    log = broker.logs.log("t", 0)
    assert log is not None
    for epoch in (2, 5):
        for _ in range(6):
            produce(log, batch(2, size=100), epoch=epoch)
    rows = log.epochs.entries()
    broker.kill()
    broker.place.content("leader-epoch-checkpoint")[:] = content
    assert broker.restart().epochs.entries() == rows == [(0, 0), (2, 12), (5, 24)]
    assert broker.place.read_all("leader-epoch-checkpoint") == b"0\n3\n0 0\n2 12\n5 24\n"


def test_an_epoch_is_written_with_its_first_batch_and_not_before() -> None:
    broker = Broker(2)
    log = broker.logs.log("t", 0)
    assert log is not None
    broker.disk.calls.clear()
    log.begin_epoch(9)
    assert (log.latest_epoch, log.epochs.entries()) == (9, [(0, 0), (9, 4)])
    assert broker.disk.calls == []
    produce(log, batch(2, size=100), epoch=9)
    assert broker.disk.calls == [("replace", EPOCHS_NAME), ("append", FIRST)]
    broker.kill()
    assert broker.restart().epochs.entries() == [(0, 0), (9, 4)]


def test_an_epoch_whose_first_batch_was_not_written_is_remembered() -> None:
    broker = Broker(2)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.begin_epoch(9)
    broker.disk.fail_append_after = 0
    with pytest.raises(OSError, match="disk is full"):
        produce(log, batch(2, size=100), epoch=9)
    broker.kill()
    assert broker.restart().epochs.entries() == [(0, 0), (9, 4)]


def test_an_epoch_the_disk_had_no_room_for_is_written_with_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(2)
    log = broker.logs.log("t", 0)
    assert log is not None
    with monkeypatch.context() as full:
        full.setattr("harness.disks.memory_disk.MemoryDirectory.replace", _no_room)
        with pytest.raises(OSError, match="No space"):
            produce(log, batch(2, size=100), epoch=9)
    assert log.end == 4
    produce(log, batch(2, size=100), epoch=9)
    broker.kill()
    log = broker.restart()
    assert (log.epochs.entries(), log.end) == ([(0, 0), (9, 4)], 6)


def test_an_epoch_that_wrote_nothing_gives_way_to_what_a_leader_sends() -> None:
    broker = Broker(2)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.begin_epoch(3)
    view = batch(2, size=100)
    place_batch(view, 0, base_offset=4, leader_epoch=5)
    log.append_as_follower(NOW, NOW_MS, view)
    broker.kill()
    assert broker.restart().epochs.entries() == [(0, 0), (5, 4)]


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("content", [b"", b"bad", bytes(56)])
def test_a_bad_snapshot_is_replaced_by_an_older_one_and_the_batches(content: bytes) -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    for name in broker.place.names():
        if name.endswith(".snapshot"):
            broker.place.content(name)[:] = content
    log = broker.restart()
    for at in range(7, 12):
        assert produce(log, batch(2, producer=(7, 0, at * 2))).duplicate


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "tidelog.mark"]
)
@pytest.mark.parametrize("content", [b"", b"\xff" * 30, b"0\n5\nt 0 3\n", b"{}\n"])
def test_bad_checkpoints_cost_time_but_no_record(name: str, content: bytes) -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    broker.disk.directory().content(name)[:] = content
    assert values_of(broker.restart()) == list(range(24))


def test_files_that_were_about_to_go_are_removed() -> None:
    broker = Broker(2)
    broker.kill()
    for name in (f"{0:020d}.log.deleted", "x.tmp", f"{0:020d}.index.cleaned"):
        broker.place.replace(name, b"x")
    broker.place.replace("note from the admin", b"x")
    assert values_of(broker.restart()) == [0, 1, 2, 3]
    assert "note from the admin" in broker.place.names()
    assert not any(name.endswith((".deleted", ".tmp", ".cleaned")) for name in broker.place.names())


def test_a_directory_without_a_segment_is_an_empty_log() -> None:
    broker = Broker(0)
    broker.place.make()
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end) == (0, 0)
    assert produce(log, batch()).first_offset == 0


def test_a_start_above_the_end_begins_anew_after_a_power_loss_only() -> None:
    broker = Broker(6)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.advance_start(11)
    broker.checkpoint()
    broker.kill()
    log.purge()
    del broker.place.content(SECOND)[:]
    broker.logs = broker.open()
    (refusal,) = broker.logs.offline.values()
    assert "starts at 11 and ends at 10" in str(refusal)
    broker.lose_power()
    log = broker.restart()
    assert (log.start, log.end, len(log.epochs), len(log.producers)) == (11, 11, 0, 0)
    assert produce(log, batch()).first_offset == 11


def test_a_batch_larger_than_the_buffer_is_checked_in_pieces() -> None:
    settings = LogSettings(max_message_bytes=20_000_000)
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, settings)
    for size in (9_000_000, 10, 5_000_000, 4_200_000, 10):
        produce(log, batch(1, size=size))
    disk.kill()
    reopened = open_logs(disk.directory()).log("t", 0)
    assert reopened is not None
    assert reopened.end == 5
    disk.kill()
    disk.directory().directory("t-0").content(FIRST)[8_999_999] ^= 1
    cut = open_logs(disk.directory(), boot_id="next").log("t", 0)
    assert cut is not None
    assert cut.end == 0


def test_any_garbage_behind_the_tail_is_cut() -> None:
    rng = Random(1)
    for _ in range(30):
        broker = Broker(2)
        broker.kill()
        broker.place.content(FIRST).extend(rng.randbytes(rng.randint(1, 400)))
        assert values_of(broker.restart()) == [0, 1, 2, 3]


def test_zeros_behind_the_tail_are_cut() -> None:
    broker = Broker(2)
    broker.kill()
    broker.place.content(FIRST).extend(bytes(100_000))
    log = broker.restart()
    assert log.size_bytes == 2 * SIZE


def opened_below(folder: Path) -> list[str]:
    links = (one for one in Path("/proc/self/fd").iterdir() if one.is_symlink())
    return [path for one in links if (path := str(one.readlink())).startswith(f"{folder}/")]


def test_a_log_that_lost_all_its_files_to_a_power_loss_keeps_none_open(tmp_path: Path) -> None:
    open_logs(open_disk(str(tmp_path)))
    (tmp_path / "t-0").mkdir()
    logs = open_logs(open_disk(str(tmp_path)), boot_id="boot-2")
    for log in logs:
        log.abandon()
    assert len([*logs]) == 1
    assert [path for path in opened_below(tmp_path) if path.endswith(".log")] == []


def test_a_log_that_is_refused_keeps_no_file_open(tmp_path: Path) -> None:
    place = open_disk(str(tmp_path)).directory("t-0")
    place.make()
    place.open(FIRST).close()
    promised = Expected(LastStop.POWER_LOSS, recovery_point=2, start=0, now_ms=NOW_MS)
    with pytest.raises(CorruptError, match="offset 0 was flushed"):
        recover(place, promised, LogSettings())
    assert opened_below(tmp_path) == []
