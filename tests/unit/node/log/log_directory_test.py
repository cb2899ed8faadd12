"""All logs of a broker: whose they are, making and deleting them, checkpoints."""

import errno

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import (
    CLUSTER_ID,
    NOW_MS,
    TOPIC_ID,
    batch,
    flush,
    open_logs,
    owner,
    produce,
    values_of,
)
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import ZERO_UUID, Partition, Uuid, uuid_text
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.settings import LogSettings
from tidelog.wire.errors import ErrorCode, Rejected

SETTINGS = LogSettings()
OTHER_ID = Uuid(bytes(range(1, 17)))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(logs: LogDirectory, topic: str = "t", partition: int = 0, batches: int = 3) -> None:
    log = logs.create(topic, partition, TOPIC_ID, SETTINGS)
    for _ in range(batches):
        produce(log, batch(2))


# -- whose it is


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "said"),
    [("other", 0, "cluster.id"), (CLUSTER_ID, 5, "node.id '0', this is '5'")],
)
def test_somebody_elses_directory_is_refused(
    disk: MemoryDisk, cluster_id: str, node_id: int, said: str
) -> None:
    open_logs(disk.directory())
    logs = LogDirectory(disk.directory(), owner(cluster_id=cluster_id, node_id=node_id))
    with pytest.raises(CannotStartError, match=said) as caught:
        logs.open(lambda _: SETTINGS, NOW_MS)
    assert "choose another --data" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff", b"cluster.id=x\n", b"directory.id=short\n"])
def test_a_directory_that_does_not_say_whose_it_is_is_refused(
    disk: MemoryDisk, content: bytes
) -> None:
    open_logs(disk.directory())
    disk.directory().content("meta.properties")[:] = content
    with pytest.raises(CannotStartError, match="cannot be read; restore it"):
        open_logs(disk.directory())


def test_logs_without_an_owner_are_not_formatted_anew(disk: MemoryDisk) -> None:
    filled(open_logs(disk.directory()))
    disk.directory().unlink("meta.properties")
    with pytest.raises(CannotStartError, match="cannot be told whose they are"):
        open_logs(disk.directory())


# -- one bad log


def test_one_damaged_log_does_not_stop_the_others(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    filled(logs, topic="u")
    checkpoint = logs.checkpoint({})
    checkpoint.write()
    logs.checkpointed(checkpoint)
    disk.directory().directory("t-0").content(f"{0:020d}.log")[90] ^= 1
    logs = open_logs(disk.directory())
    with pytest.raises(CorruptError, match="wrong checksum"):
        logs.log("t", 0)
    with pytest.raises(CorruptError):
        logs.create("t", 0, TOPIC_ID, SETTINGS)
    good = logs.log("u", 0)
    assert good is not None
    assert values_of(good) == list(range(6))
    logs.close_clean({})
    assert ("t", 0) in open_logs(disk.directory()).offline


def test_a_disk_that_cannot_be_read_takes_one_log_offline(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(open_logs(disk.directory()))
    monkeypatch.setattr("harness.disks.memory_disk.MemoryFile.read_into", _fail)
    logs = open_logs(disk.directory())
    with pytest.raises(CorruptError, match="bad sector"):
        logs.log("t", 0)
    logs.delete("t", 0)
    assert logs.log("t", 0) is None


def _fail(*_: object) -> int:
    raise OSError("bad sector")


def test_names_that_are_no_partitions_are_left_alone(disk: MemoryDisk) -> None:
    for name in ("lost+found", "t-", "-3", "t-x", "t-01", "a" * 250 + "-0"):
        disk.directory().directory(name).make()
        assert key_of(name) is None
    assert len(open_logs(disk.directory())) == 0
    assert key_of("a-b.c-10") == ("a-b.c", 10)


# -- create and delete


def test_a_log_is_made_once_and_takes_new_settings(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    later = LogSettings(segment_bytes=5000)
    assert logs.create("t", 0, TOPIC_ID, later) is log
    assert log.settings is later
    assert logs.log("t", 1) is None


def test_an_older_topic_of_the_name_is_in_the_way(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    with pytest.raises(Rejected) as caught:
        logs.create("t", 0, OTHER_ID, SETTINGS)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_that_lost_its_topics_id_takes_it_again(disk: MemoryDisk) -> None:
    filled(open_logs(disk.directory()))
    place = disk.directory().directory("t-0")
    place.content("partition.metadata")[:] = b"garbage"
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    assert (log.end, log.name.topic_id) == (6, TOPIC_ID)
    assert uuid_text(TOPIC_ID).encode() in place.content("partition.metadata")
    assert logs.create("t", 0, ZERO_UUID, SETTINGS).name.topic_id == TOPIC_ID
    fresh = logs.create("u", 0, ZERO_UUID, SETTINGS)
    assert logs.create("u", 0, OTHER_ID, SETTINGS).name.topic_id == OTHER_ID
    produce(fresh, batch())
    assert disk.directory().directory("u-0").exists("partition.metadata")


def test_a_deleted_log_is_put_aside_and_then_removed(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    stale = logs.log("t", 0)
    assert stale is not None
    logs.delete("t", 0)
    aside = f"t-0.{TOPIC_ID.hex()}-delete"
    assert disk.directory().exists(aside)
    assert not disk.directory().exists("t-0")
    with pytest.raises(Rejected):
        produce(stale, batch())
    for removal in logs.take_removals():
        removal.run()
    assert not disk.directory().exists(aside)
    assert logs.take_removals() == []
    logs.delete("t", 0)


def test_a_removal_cut_short_by_a_kill_is_finished_by_the_next(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.delete("t", 0)
    logs = open_logs(disk.directory())
    assert len(logs) == 0
    (removal,) = logs.take_removals()
    removal.run()
    assert not disk.directory().exists(removal.name)


def test_a_topic_may_be_deleted_twice_before_the_first_is_removed(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    for _ in range(2):
        filled(logs)
        logs.delete("t", 0)
    first, second = logs.take_removals()
    second.run()
    first.run()
    assert not [name for name in disk.directory().names() if name.startswith("t-0")]


def test_a_topic_with_the_longest_name_can_be_put_aside(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs, topic="x" * 249)
    logs.delete("x" * 249, 0)
    (removal,) = logs.take_removals()
    assert len(removal.name) == 255
    assert key_of(removal.name) is None


def test_a_log_without_files_leaves_none_behind(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    logs.create("t", 0, TOPIC_ID, SETTINGS)
    logs.delete("t", 0)
    assert logs.take_removals() == []


def test_a_new_topic_does_not_inherit_the_offsets_of_a_deleted_one(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs, batches=50)
    old = logs.log("t", 0)
    assert old is not None
    flush(old)
    old.advance_start(90)
    checkpoint = logs.checkpoint({("t", Partition(0)): 100})
    checkpoint.write()
    logs.checkpointed(checkpoint)
    logs.delete("t", 0)
    new = logs.create("t", 0, OTHER_ID, SETTINGS)
    produce(new, batch(2))
    logs = open_logs(disk.directory())
    log = logs.log("t", 0)
    assert log is not None
    assert (log.start, log.end, log.name.topic_id) == (0, 2, OTHER_ID)
    assert logs.high_watermark("t", 0) == 0


def test_a_new_log_does_not_inherit_the_offsets_of_one_deleted_right_before_a_kill(
    disk: MemoryDisk,
) -> None:
    """The checkpoint on disk still has the deleted log. With its recovery point the new log would
    pass for one that lost what was flushed."""
    logs = open_logs(disk.directory())
    filled(logs, batches=50)
    old = logs.log("t", 0)
    assert old is not None
    flush(old)
    checkpoint = logs.checkpoint({("t", Partition(0)): 100})
    checkpoint.write()
    logs.checkpointed(checkpoint)
    logs.delete("t", 0)
    logs = open_logs(disk.directory())
    produce(logs.create("t", 0, TOPIC_ID, SETTINGS), batch(2))
    logs = open_logs(disk.directory())
    assert not logs.offline
    log = logs.log("t", 0)
    assert log is not None
    assert (log.start, log.end) == (0, 2)


def test_a_deleted_log_whose_files_could_not_be_made_leaves_no_directory(disk: MemoryDisk) -> None:
    """It would be found beside one that is made later in another log directory."""
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    disk.failing["create"] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        produce(log, batch(2))
    disk.failing.clear()
    assert disk.directory().exists("t-0")
    logs.delete("t", 0)
    assert not disk.directory().exists("t-0")


# -- checkpoints


def test_checkpoints_bring_back_start_recovery_point_and_high_watermark(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    log = logs.log("t", 0)
    assert log is not None
    flush(log)
    log.advance_start(3)
    checkpoint = logs.checkpoint({("t", Partition(0)): 5})
    checkpoint.write()
    assert not disk.directory().exists("recovery-point-offset-checkpoint"), "not yet in force"
    logs.checkpointed(checkpoint)
    assert disk.directory().content("recovery-point-offset-checkpoint") == b"0\n1\nt 0 6\n"
    logs = open_logs(disk.directory())
    log = logs.log("t", 0)
    assert log is not None
    assert (log.start, log.recovery_point, logs.high_watermark("t", 0)) == (3, 6, 5)


def test_a_checkpoint_overtaken_by_a_cut_is_dropped(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    log = logs.log("t", 0)
    assert log is not None
    flush(log)
    checkpoint = logs.checkpoint({})
    checkpoint.write()
    log.truncate_to(2)
    logs.checkpointed(checkpoint)
    assert disk.directory().content("recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert not [name for name in disk.directory().names() if name.endswith(".pending")]


def test_a_high_watermark_stays_within_the_log(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    log = logs.log("t", 0)
    assert log is not None
    logs.checkpoint({("t", Partition(0)): 99})
    assert logs.high_watermark("t", 0) == 6
    logs.checkpoint({("t", Partition(0)): 0})
    log.advance_start(2)
    assert logs.high_watermark("t", 0) == 2


def test_sealed_segments_ask_for_a_flush_once(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    filled(logs, topic="u")
    log = logs.log("t", 0)
    gone = logs.log("u", 0)
    assert log is not None
    assert gone is not None
    log.roll(NOW_MS)
    gone.roll(NOW_MS)
    logs.delete("u", 0)
    assert logs.take_rolled() == [log]
    assert logs.take_rolled() == []
