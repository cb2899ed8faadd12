"""Several log directories of one broker: where logs lie, and what a start makes of what is gone."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.disks.platter import Node
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, owner, produce, values_of
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import Incarnation, Partition, Uuid
from tidelog.kernel.launch import broker_directories
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.node.replica.log_ends import stop_kind
from tidelog.wire.metadata_records import StopKind

SETTINGS = LogSettings()
OTHER_ID = Uuid(b"another topic's ")


class Lives:
    """One broker's disk, and the directories each of its lives is given."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.count = 0

    def start(self, *names: str, boot: int = 1) -> LogDirectories:
        self.count += 1
        self.disk.kill()
        logs = LogDirectories([self._directory(name, boot) for name in names])
        logs.open(lambda _: SETTINGS, NOW_MS)
        return logs

    def _directory(self, name: str, boot: int) -> LogDirectory:
        one = owner(boot_id=f"boot-{boot}", incarnation=self.count)
        made = Uuid(f"{name}-{self.count}".encode().ljust(16, b"."))
        kept = type(one)(
            cluster_id=one.cluster_id,
            node_id=one.node_id,
            boot_id=one.boot_id,
            disk_generation=one.disk_generation,
            incarnation=Incarnation(self.count),
            directory_id=made,
        )
        return LogDirectory(self.disk.directory(name), kept)

    def has(self, name: str, log: str) -> bool:
        return self.disk.directory(name).exists(log)


def filled(logs: LogDirectories, partition: int, topic_id: Uuid = TOPIC_ID) -> Log:
    log = logs.create("t", partition, topic_id, SETTINGS)
    produce(log, batch(2))
    return log


def checkpoint(logs: LogDirectories) -> None:
    for one in logs.working:
        written = one.checkpoint({})
        written.write()
        one.checkpointed(written)


def write_kept(logs: LogDirectories) -> None:
    for one in logs.working:
        file = one.take_kept()
        if file is not None:
            file.write()
            one.kept.ended(well=True)


@pytest.fixture
def lives() -> Lives:
    return Lives()


# -- where logs lie


def test_a_new_log_goes_where_the_fewest_are_and_is_found_there_again(lives: Lives) -> None:
    logs = lives.start("a", "b")
    for partition in range(5):
        filled(logs, partition)
    assert [len(one) for one in logs.all] == [3, 2]
    logs.delete("t", 0)
    logs.delete("t", 2)
    filled(logs, 5)
    assert [len(one) for one in logs.all] == [2, 2]
    again = lives.start("b", "a")
    assert len(again) == 4
    for partition in (1, 3, 4, 5):
        log = again.log("t", partition)
        assert log is not None
        assert values_of(log) == [0, 1]
    assert lives.has("a", "t-4")
    assert lives.has("b", "t-1")


def test_a_power_loss_does_not_bring_a_deleted_log_back_beside_the_new_one_of_its_name(
    lives: Lives,
) -> None:
    """That its directory was renamed may not be durable yet. With the new log in another directory
    the name would be in two of them, and the broker would refuse to start."""
    logs = lives.start("a", "b")
    for partition in range(3):
        flush(filled(logs, partition))
    for partition in range(2):
        logs.delete("t", partition)
    assert [len(one) for one in logs.all] == [1, 0]
    flush(filled(logs, 0, OTHER_ID))
    lives.disk.lose_power()
    again = lives.start("a", "b", boot=2)
    log = again.log("t", 0)
    assert log is not None
    assert (log.name.topic_id, values_of(log)) == (OTHER_ID, [0, 1])


def test_each_directory_is_whole_by_itself(lives: Lives) -> None:
    """Its own identity, its own checkpoints: what is written for one touches no other."""
    logs = lives.start("a", "b")
    for partition in range(2):
        flush(filled(logs, partition))
    lives.disk.calls.clear()
    written = logs.all[0].checkpoint({("t", Partition(0)): 2})
    written.write()
    logs.all[0].checkpointed(written)
    ids = {one.directory_id for one in logs.all}
    assert len(ids) == 2
    recovery = "recovery-point-offset-checkpoint"
    assert lives.disk.directory("a").content(recovery) == b"0\n1\nt 0 2\n"
    assert not lives.has("b", recovery)
    assert {one.directory_id for one in lives.start("a", "b").all} == ids


def test_the_folder_of_a_single_directory_starts_as_it_is(lives: Lives) -> None:
    """As every broker had it before, and its mark says nothing of others."""
    alone = LogDirectory(lives.disk.directory("log0"), owner())
    alone.open(lambda _: SETTINGS, NOW_MS)
    produce(alone.create("t", 0, TOPIC_ID, SETTINGS), batch(2))
    alone.close_clean({})
    logs = lives.start("log0", "b")
    assert (logs.last_stop, logs.lost_files, logs.may_lack) == (LastStop.CLEAN, True, False)
    logs.heard()
    log = logs.log("t", 0)
    assert log is not None
    assert values_of(log) == [0, 1]
    filled(logs, 1)
    assert lives.has("b", "t-1")
    assert stop_kind(lives.start("log0", "b")) is StopKind.KILLED


def test_a_log_in_two_directories_is_refused_with_both_names(lives: Lives) -> None:
    filled(lives.start("a", "b"), 0)
    top = lives.disk.root.names
    assert isinstance(top["a"], Node)
    assert isinstance(top["b"], Node)
    top["b"].names["t-0"] = top["a"].names["t-0"]  # as a copy by hand
    with pytest.raises(CannotStartError, match=r"t-0 is in two log directories, a/t-0 and b/t-0"):
        lives.start("a", "b")


@pytest.mark.parametrize("topic_id", [TOPIC_ID, OTHER_ID])
def test_the_log_of_a_directory_that_was_away_is_put_aside_where_another_one_was_made(
    lives: Lives, topic_id: Uuid
) -> None:
    """Of that topic or of another one that got its name; nothing that may be missed is removed."""
    logs = lives.start("a", "b")
    for partition in range(2):
        filled(logs, partition)
    logs = lives.start("b")
    filled(logs, 0, topic_id)
    logs = lives.start("a", "b")
    log = logs.log("t", 0)
    assert log is not None
    assert (log.name.topic_id, log.directory.path) == (topic_id, "b/t-0")
    assert not lives.has("a", "t-0")
    assert logs.strays == [f"a/t-0.{TOPIC_ID.hex()}-stray"]
    assert lives.has("a", logs.strays[0].removeprefix("a/"))
    assert logs.all[0].take_removals() == []
    assert lives.start("a", "b").strays == []


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({}, ("/d/broker-1/log0",)),
        ({"log.dir": "x"}, ("/d/broker-1/x",)),
        ({"log.dirs": "x, /mnt/y/", "log.dir": "z"}, ("/d/broker-1/x", "/mnt/y/broker-1")),
    ],
)
def test_names_are_of_the_brokers_own_folder_and_paths_are_shared_by_all(
    given: dict[str, str], places: tuple[str, ...]
) -> None:
    assert broker_directories("/d", 1, given) == places


# -- one fails


def test_what_lies_in_a_directory_that_failed_is_offline_and_all_else_goes_on(
    lives: Lives,
) -> None:
    logs = lives.start("a", "b")
    gone, kept = filled(logs, 0), filled(logs, 1)
    lives.disk.broken.add("a")
    logs.fail(logs.all[0], OSError(5, "the disk is broken"))
    logs.write_marks()
    assert [one.path for one in logs.take_failed()] == ["a"]
    assert logs.take_failed() == []
    with pytest.raises(CorruptError, match="the disk is broken"):
        logs.log("t", 0)
    with pytest.raises(CorruptError, match="the disk is broken"):
        produce(gone, batch(2))
    produce(kept, batch(2))
    assert {key for key, _ in logs.offline.items()} == {("t", 0)}
    assert filled(logs, 2).directory.path == "b/t-2"
    assert logs.is_out(("t", Partition(0)))
    assert not logs.is_out(("t", Partition(1)))


def test_a_log_that_is_kept_may_be_found_whole_until_it_is_struck_and_that_is_written(
    lives: Lives,
) -> None:
    logs = lives.start("a", "b")
    filled(logs, 0)
    key = ("t", Partition(0))
    assert not logs.may_be_kept(key)
    assert not logs.may_be_kept(("unknown", Partition(0)))
    logs.keep(key, TOPIC_ID)
    write_kept(logs)
    assert logs.may_be_kept(key)
    logs.strike(key)
    assert logs.may_be_kept(key), "the file still says so"
    write_kept(logs)
    assert not logs.may_be_kept(key)


def test_a_log_that_cannot_be_put_aside_ends_its_directory(lives: Lives) -> None:
    """Deleted it is forgotten, wanted again it stays offline: never are there two of it."""
    logs = lives.start("a", "b")
    for partition in range(4):
        filled(logs, partition)
    lives.disk.broken.add("a")
    assert logs.begin_anew("t", 0) is False
    assert set(logs.offline) == {("t", 0), ("t", 2)}
    assert logs.delete("t", 2) is True
    assert set(logs.offline) == {("t", 0)}
    assert [one.path for one in logs.take_failed()] == ["a"]


def test_a_directory_that_cannot_be_read_at_the_start_holds_up_no_other(lives: Lives) -> None:
    logs = lives.start("a", "b")
    for partition in range(2):
        filled(logs, partition)
    logs.heard()
    lives.disk.broken.add("a")
    logs = lives.start("a", "b")
    assert [one.path for one in logs.working] == ["b"]
    assert logs.log("t", 1) is not None
    assert logs.may_lack
    assert stop_kind(logs) is StopKind.KILLED, "what is there is as it was"
    lives.disk.broken.add("b")
    with pytest.raises(OSError, match="the disk is broken"):
        lives.start("a", "b")


# -- what the next life knows


def test_the_cluster_is_told_of_what_a_missing_directory_held_until_it_heard(lives: Lives) -> None:
    logs = lives.start("a", "b")
    filled(logs, 0)
    logs.heard()
    for _ in range(2):  # also where a life ended before anybody heard
        logs = lives.start("b")
        assert (logs.may_lack, stop_kind(logs)) == (True, StopKind.KILLED)
    logs.lack("t", 0)
    with pytest.raises(CorruptError, match="put the missing one back"):
        logs.create("t", 0, TOPIC_ID, SETTINGS)
    assert logs.is_lacking(("t", Partition(0)))
    assert not logs.is_out(("t", Partition(0)))
    logs.heard()
    assert not lives.start("b").may_lack


def test_a_disk_that_was_replaced_is_a_missing_directory(lives: Lives) -> None:
    logs = lives.start("a", "b")
    filled(logs, 0)
    logs.heard()
    for name in lives.disk.directory("a").names():
        lives.disk.directory("a").unlink(name)
    logs = lives.start("a", "b")
    assert (logs.may_lack, stop_kind(logs)) == (True, StopKind.KILLED)


def test_a_directory_that_is_added_holds_nothing_that_anybody_counts_on(lives: Lives) -> None:
    logs = lives.start("a")
    filled(logs, 0)
    logs.heard()
    logs = lives.start("a", "b")
    assert (logs.may_lack, stop_kind(logs)) == (False, StopKind.KILLED)
    logs = lives.start("a", "b")  # killed before it was heard
    assert (logs.may_lack, stop_kind(logs)) == (False, StopKind.KILLED)


def test_directories_that_are_all_new_are_a_first_start(lives: Lives) -> None:
    assert stop_kind(lives.start("a", "b")) is StopKind.FIRST_START
    assert stop_kind(lives.start("c", "d")) is StopKind.FIRST_START


@pytest.mark.parametrize("is_told", [False, True])
def test_what_comes_back_is_read_as_after_a_power_loss(lives: Lives, *, is_told: bool) -> None:
    """The kernel may have dropped what it could not write. The cluster is told, if it was not."""
    logs = lives.start("a", "b")
    logs.heard()
    log = filled(logs, 0)
    flush(log)
    checkpoint(logs)
    for _ in range(2):
        produce(log, batch(2))
    logs.fail(logs.all[0], OSError(5, "the disk is broken"))
    logs.write_marks()
    if is_told:
        logs.heard()
    content = lives.disk.directory("a").directory("t-0").content(f"{0:020d}.log")
    content[-len(batch(2)) - 1] ^= 1  # a page that the kernel dropped, though not the last
    logs = lives.start("a", "b")
    found = logs.log("t", 0)
    assert found is not None
    assert found.end == 2
    assert not logs.may_lack
    assert stop_kind(logs) is (StopKind.KILLED if is_told else StopKind.POWER_LOSS)
