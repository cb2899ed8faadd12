"""What `log verify` calls a violation, and what a remark, by how a directory was left."""

from collections.abc import Callable

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, open_logs, produce
from harness.logs.one_log import FIRST, LAST, SECOND, SIZE, Broker
from harness.logs.verified import around, verified
from tidelog.node.log.epochs import FILE_NAME as EPOCHS
from tidelog.node.log.marks import MARK_NAME
from tidelog.node.log.producer_snapshot import encode_snapshot
from tidelog.node.log.producers import Producers
from tidelog.node.log.settings import LogSettings
from tidelog.tools.log_files.findings import Report
from tidelog.wire.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from tidelog.wire.records import read_header

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=100)


def closed(count: int = 40) -> MemoryDirectory:
    """One log of several segments after a clean stop."""
    disk = MemoryDisk()
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    for at in range(count):
        view = batch(2, size=100, timestamp=NOW_MS + at, producer=(7, 0, 2 * at))
        produce(log, view, epoch=at // 20)
    logs.close_clean({log.name.key: log.end})
    return disk.directory()


def said(report: Report) -> dict[str, str]:
    """The last reason for each file that something is wrong with."""
    return {one.file.removeprefix("log0/"): one.reason for one in report.violations}


def segments(place: MemoryDirectory, suffix: str = ".log") -> list[str]:
    return [name for name in place.names() if name.endswith(suffix)]


# -- after a clean stop -------------------------------------------------------------------------


def test_a_bad_batch_is_told_with_its_place_and_the_next_ones_are_read_on() -> None:
    top = closed()
    place = top.directory("t-0")
    first = segments(place)[0]
    size = len(batch(2, size=100))
    for at in (1, 3):
        place.content(first)[at * size + 70] ^= 1
    report = verified(top, around())
    assert [(one.file, one.position, one.reason) for one in report.violations] == [
        (f"log0/t-0/{first}", at * size, f"wrong checksum, where offset {2 * at} should be")
        for at in (1, 3)
    ]


def test_a_torn_tail_is_a_violation_after_a_clean_stop() -> None:
    top = closed()
    place = top.directory("t-0")
    last = segments(place)[-1]
    place.content(last).extend(b"torn")
    assert said(verified(top, around())) == {
        f"t-0/{last}": "the header is cut short, where offset 80 should be"
    }


def test_an_index_entry_that_names_no_batch_is_a_violation() -> None:
    top = closed()
    place = top.directory("t-0")
    name = segments(place, ".index")[0]
    place.content(name)[7] ^= 1
    assert said(verified(top, around())) == {f"t-0/{name}": "points where no batch begins"}


def test_a_timestamp_that_is_not_the_largest_so_far_is_a_violation() -> None:
    top = closed()
    place = top.directory("t-0")
    name = segments(place, ".timeindex")[0]
    place.content(name)[7] -= 1
    (reason,) = said(verified(top, around())).values()
    assert reason.startswith(f"says {NOW_MS}"[:-3])
    assert "of a batch of" in reason


def test_a_producer_snapshot_must_agree_with_the_batches() -> None:
    top = closed()
    place = top.directory("t-0")
    name = segments(place, ".snapshot")[-1]
    state = Producers()
    place.content(name)[:] = encode_snapshot(state)
    assert said(verified(top, around())) == {}  # nobody kept: all may have been too old
    other = batch(1, producer=(9, 0, 0))
    state.note(read_header(other), 3, NOW_MS)
    place.content(name)[:] = encode_snapshot(state)
    assert said(verified(top, around())) == {
        f"t-0/{name}": "lacks producer 7, whose last batch ends at 79"
    }


def test_epochs_must_be_those_of_the_batches() -> None:
    top = closed()
    top.directory("t-0").content(EPOCHS)[:] = b"0\n2\n0 0\n1 42\n"
    assert said(verified(top, around())) == {
        f"t-0/{EPOCHS}": "says (epoch, from) [(0, 0), (1, 42)], the batches [(0, 0), (1, 40)]"
    }


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_checkpoint_behind_the_logs_end_is_a_violation(name: str) -> None:
    top = closed()
    top.content(name)[:] = b"0\n1\nt 0 81\n"
    assert said(verified(top, around())) == {name: "says 81 of t-0, which ends at 80"}


def test_files_that_nobody_knows_are_violations() -> None:
    top = closed()
    top.replace("notes.txt", b"")
    top.directory("t-0").replace("00000000000000000000.log.bak", b"")
    assert said(verified(top, around())) == {
        "notes.txt": "is not a file of a log directory",
        "t-0/00000000000000000000.log.bak": "is not a file of a log",
    }


def test_another_brokers_directory_is_told() -> None:
    top = closed()
    top.content("meta.properties")[:] = bytes(top.content("meta.properties")).replace(
        b"node.id=0", b"node.id=1"
    )
    assert said(verified(top, around())) == {"meta.properties": "says node.id '1' instead of '0'"}


def test_a_lost_segment_is_told() -> None:
    top = closed()
    place = top.directory("t-0")
    lost, after = segments(place)[1:3]
    place.unlink(lost)
    report = verified(top, around())
    before, base = int(lost[:20]), int(after[:20])
    assert said(report)[f"t-0/{after}"] == (
        f"begins at offset {base}, the segment before it ends at {before}"
    )


# -- after a kill, a power loss, or while it runs -----------------------------------------------


def harmed(harm: Callable[[Broker], None]) -> Report:
    broker = Broker()
    broker.kill()
    harm(broker)
    return verified(broker.disk.directory(), around())


def test_a_torn_tail_after_a_kill_is_a_remark() -> None:
    report = harmed(lambda broker: broker.place.content(LAST).extend(b"torn"))
    assert report.violations == []
    assert [one.reason for one in report.remarks] == [
        "the header is cut short: the next start cuts 4 bytes"
    ]


def test_damage_in_the_middle_is_a_violation_after_a_kill_too() -> None:
    def harm(broker: Broker) -> None:
        broker.place.content(SECOND)[100] ^= 1

    assert list(said(harmed(harm))) == [f"t-0/{SECOND}"]


def test_a_running_brokers_indexes_are_not_expected_for_its_last_segment() -> None:
    broker = Broker()
    assert verified(broker.disk.directory(), around(in_use=True)).findings == []


def test_what_a_power_loss_took_above_the_recovery_point_is_a_remark() -> None:
    broker = Broker()
    broker.kill()
    broker.place.content(FIRST)[SIZE + 70] ^= 1
    assert list(said(verified(broker.disk.directory(), around()))) == [f"t-0/{FIRST}"]
    after = verified(broker.disk.directory(), around(boot_id="boot-2"))
    assert after.violations == []
    assert after.remarks


def test_what_was_flushed_may_not_be_taken_by_a_power_loss() -> None:
    broker = Broker(flushed=12)
    broker.kill()
    broker.place.content(FIRST)[SIZE + 70] ^= 1
    assert list(said(verified(broker.disk.directory(), around(boot_id="boot-2")))) == [
        f"t-0/{FIRST}"
    ]


def test_where_all_that_was_flushed_is_deleted_a_power_loss_may_take_anything() -> None:
    broker = Broker(flushed=6)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.advance_start(13)
    broker.checkpoint()
    broker.kill()
    broker.place.unlink(SECOND)
    assert verified(broker.disk.directory(), around(boot_id="boot-2")).violations == []


def test_where_all_that_was_flushed_is_deleted_a_power_loss_may_bring_its_first_files_back() -> (
    None
):
    broker = Broker(flushed=6)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.advance_start(13)
    broker.checkpoint()
    broker.kill()
    for name in [
        name for name in broker.place.names() if name.startswith((SECOND[:20], LAST[:20]))
    ]:
        broker.place.unlink(name)
    assert verified(broker.disk.directory(), around(boot_id="boot-2")).violations == []
    assert broker.disk.directory().content(RECOVERY_POINTS) == b"0\n1\nt 0 12\n"


def test_a_mark_that_is_not_whole_is_a_violation() -> None:
    top = closed()
    top.content(MARK_NAME)[5] ^= 1
    assert said(verified(top, around()))[MARK_NAME] == "is not whole"
