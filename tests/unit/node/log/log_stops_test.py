"""How the last broker on a directory stopped, and what a start may skip for it."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import (
    NOW_MS,
    TOPIC_ID,
    batch,
    flush,
    open_logs,
    owner,
    produce,
    values_of,
)
from harness.logs.compaction import append, compact, records_of
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, Incarnation, Partition, uuid_text
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.marks import ClosedLog, LastStop, Mark, decode_mark, encode_mark
from tidelog.node.log.settings import LogSettings
from tidelog.node.replica.log_ends import stop_kind
from tidelog.wire.crc import crc32c
from tidelog.wire.metadata_records import StopKind

SETTINGS = LogSettings()


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(logs: LogDirectory, topic: str = "t", partition: int = 0, batches: int = 3) -> None:
    log = logs.create(topic, partition, TOPIC_ID, SETTINGS)
    for _ in range(batches):
        produce(log, batch(2))


# -- how the last one stopped


def test_a_new_directory_never_ran(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    assert logs.last_stop is LastStop.NEVER_RAN
    assert uuid_text(logs.directory_id) in disk.directory().content("meta.properties").decode()


def test_what_was_lost_is_told_until_the_cluster_has_heard_of_it(disk: MemoryDisk) -> None:
    """A life that found its files lost may be over before anyone could hear of it."""
    directory = disk.directory()
    logs = open_logs(directory)
    filled(logs)
    assert stop_kind(logs) is StopKind.FIRST_START
    assert stop_kind(open_logs(directory)) is StopKind.POWER_LOSS
    logs = open_logs(directory)
    logs.heard()
    assert stop_kind(open_logs(directory)) is StopKind.KILLED
    assert stop_kind(open_logs(directory, boot_id="boot-2")) is StopKind.POWER_LOSS
    logs = open_logs(directory, boot_id="boot-2")
    assert (logs.last_stop, stop_kind(logs)) == (LastStop.KILLED, StopKind.POWER_LOSS)
    logs.close_clean({})
    logs = open_logs(directory, boot_id="boot-2")
    assert (logs.last_stop, stop_kind(logs)) == (LastStop.CLEAN, StopKind.POWER_LOSS)
    logs.heard()
    assert stop_kind(open_logs(directory, boot_id="boot-2")) is StopKind.KILLED


def test_a_clean_stop_is_told_from_a_kill(disk: MemoryDisk) -> None:
    filled(open_logs(disk.directory()))
    logs = open_logs(disk.directory())
    assert logs.last_stop is LastStop.KILLED
    logs.close_clean({})
    assert disk.directory().read_all(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":1}'
    logs = open_logs(disk.directory())
    assert logs.last_stop is LastStop.CLEAN
    assert not disk.directory().exists(".kafka_cleanshutdown")
    assert open_logs(disk.directory()).last_stop is LastStop.KILLED


@pytest.mark.parametrize("synced", [True, False])
def test_another_boot_trusts_a_clean_stop_only_if_all_was_flushed(
    disk: MemoryDisk, *, synced: bool
) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({}, synced=synced)
    expected = LastStop.CLEAN if synced else LastStop.POWER_LOSS
    assert open_logs(disk.directory(), boot_id="boot-2").last_stop is expected


def test_another_disk_generation_is_a_power_loss(disk: MemoryDisk) -> None:
    open_logs(disk.directory())
    logs = LogDirectory(disk.directory(), owner(disk_generation=1))
    logs.open(lambda _: SETTINGS, NOW_MS)
    assert logs.last_stop is LastStop.POWER_LOSS


def test_logs_without_a_mark_are_not_trusted(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({})
    disk.directory().unlink("tidelog.mark")
    logs = open_logs(disk.directory())
    assert logs.last_stop is LastStop.POWER_LOSS
    assert [row.name for row in logs.recovered] == ["t-0"]


def test_a_mark_is_whole_or_none() -> None:
    mark = Mark(
        clean=True,
        synced=False,
        boot_id="b",
        disk_generation=3,
        incarnation=Incarnation(5),
        logs={"t-0": ClosedLog(1, 9, 100, 5, 50, NOW_MS, 7, TOPIC_ID)},
    )
    content = encode_mark(mark)
    assert decode_mark(content) == mark
    for damaged in (None, b"", content[:-3], b"x" + content, content.replace(b'"b"', b'"c"')):
        assert decode_mark(damaged) is None
    assert decode_mark(_signed(b'{"version":3}')) is None


def test_a_mark_of_the_first_version_is_read() -> None:
    body = (
        b'{"version":1,"clean":true,"synced":false,"boot_id":"b","disk_generation":3,'
        b'"incarnation":5,"logs":{"t-0":[1,9,100,5,50,-1]}}'
    )
    mark = decode_mark(_signed(body))
    assert mark is not None
    assert mark.logs == {"t-0": ClosedLog(1, 9, 100, 5, 50, -1, NO_EPOCH, ZERO_UUID)}


def _signed(body: bytes) -> bytes:
    return body + f"\n{crc32c(body):08x}\n".encode()


# -- after a clean stop


def test_a_start_after_a_clean_stop_reads_no_log(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    for partition in range(20):
        filled(logs, partition=partition)
    logs.close_clean({("t", Partition(3)): 4})
    disk.calls.clear()
    disk.looks.clear()
    logs = open_logs(disk.directory())
    assert logs.recovered == []
    of_logs = ("size", f"{0:020d}.log")
    assert disk.looks.count(of_logs) == 20, "whether it was touched since"
    assert len(disk.looks) + len(disk.calls) < 20 + 20, "the rest is done once for all"
    disk.calls.clear()
    disk.looks.clear()
    log = logs.log("t", 3)
    assert log is not None
    assert (log.start, log.end, log.name.topic_id) == (0, 6, TOPIC_ID)
    assert log.size_bytes == 3 * len(batch(2))
    assert (logs.high_watermark("t", 3), logs.high_watermark("t", 4)) == (4, 0)
    for one in logs:
        one.begin_epoch(5)  # as its leader
        assert one.latest_epoch == 5
    assert disk.calls == disk.looks == []
    assert values_of(log) == list(range(6))
    assert produce(log, batch(), epoch=5).first_offset == 6


def test_logs_that_nobody_used_stay_closed_over_many_stops(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.create("empty", 0, TOPIC_ID, SETTINGS)
    for _ in range(3):
        logs.close_clean({})
        logs = open_logs(disk.directory())
        assert logs.last_stop is LastStop.CLEAN
        assert len(logs) == 1
    (log,) = logs
    assert values_of(log) == list(range(6))
    assert log.epochs.entries() == [(0, 0)]


def test_a_closed_log_goes_on_where_it_was(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({})
    logs = open_logs(disk.directory())
    log = logs.log("t", 0)
    assert log is not None
    log.begin_epoch(4)
    log.settings = LogSettings(segment_bytes=4 * len(batch(2)))
    for _ in range(3):
        produce(log, batch(2), epoch=4)
    log.advance_start(3)
    logs.close_clean({})
    logs = open_logs(disk.directory())
    log = logs.log("t", 0)
    assert log is not None
    assert (log.start, log.end) == (3, 12)
    assert values_of(log) == list(range(3, 12))
    assert log.epochs.entries() == [(0, 3), (4, 6)]
    assert len(log.producers) == 0


def test_a_log_whose_files_changed_since_is_read_again(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({})
    disk.directory().directory("t-0").content(f"{0:020d}.log").extend(b"torn")
    logs = open_logs(disk.directory())
    (recovered,) = logs.recovered
    assert recovered.cut is not None
    assert recovered.cut.bytes_cut == 4


@pytest.mark.parametrize("gone_bytes", [5, 100])
def test_a_log_that_has_got_shorter_since_is_damage(disk: MemoryDisk, gone_bytes: int) -> None:
    """Cut, it could lead with less than others wait for it to have, and shorten them."""
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({})
    del disk.directory().directory("t-0").content(f"{0:020d}.log")[-gone_bytes:]
    logs = open_logs(disk.directory())
    with pytest.raises(CorruptError, match="short"):
        logs.log("t", 0)


def test_a_log_that_changes_before_its_first_use_goes_offline(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    filled(logs)
    logs.close_clean({})
    logs = open_logs(disk.directory())
    disk.directory().directory("t-0").replace(f"{50:020d}.log", b"")
    log = logs.log("t", 0)
    assert log is not None
    for _ in range(2):
        with pytest.raises(CorruptError, match="changed since it was closed"):
            produce(log, batch())


def test_a_sealed_segment_of_deleted_records_is_not_missed_after_a_clean_stop(
    disk: MemoryDisk,
) -> None:
    """It was deleted as the active one, which stays until it is sealed."""
    directory = disk.directory()
    logs = open_logs(directory)
    filled(logs)
    (log,) = logs
    log.advance_start(log.end)
    log.roll(NOW_MS)
    produce(log, batch(1))
    logs.close_clean({}, synced=False)
    (again,) = open_logs(directory)
    assert len(values_of(again)) == 1


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["the first", "a middle one", "the last sealed"])
def test_a_sealed_segment_that_is_gone_after_a_clean_stop_is_missed(
    disk: MemoryDisk, lost: int
) -> None:
    """A reader must hear of it, not be led around the hole."""
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    for _ in range(4):
        produce(log, batch(2))
        log.roll(NOW_MS)
    logs.close_clean({})
    folder = disk.directory().directory("t-0")
    for suffix in (".log", ".index", ".timeindex"):
        folder.unlink(f"{2 * lost:020d}{suffix}")
    found = open_logs(disk.directory()).log("t", 0)
    assert found is not None
    with pytest.raises(CorruptError, match="its files changed since it was closed"):
        values_of(found)


def test_a_compacted_segment_found_ready_after_a_clean_stop_is_no_damage(disk: MemoryDisk) -> None:
    """The broker had begun to put it in force, and stopped before it was in the log."""
    settings = LogSettings(compact=True)
    logs = open_logs(disk.directory(), settings=settings)
    log = logs.create("t", 0, TOPIC_ID, settings)
    for value in (b"old", b"new"):
        append(log, [(b"key", value)])
        log.roll(NOW_MS)
    flush(log)

    def stopping(call: Callable[[], object]) -> NoReturn:
        call()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(logs, log, on_loop=stopping)
    assert log.directory.exists(f"{0:020d}.log.swap")
    logs.close_clean({})
    found = open_logs(disk.directory(), settings=settings).log("t", 0)
    assert found is not None
    assert [record.value for record in records_of(found)] == [b"new"]
