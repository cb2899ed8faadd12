"""A damaged disk may hold numbers that no index can hold: the log is bad then, the broker lives."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.log import Log
from tidelog.node.log.retention import Sweep
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.txn_index import TxnIndex
from tidelog.wire.log_files import Aborted, encode_aborted

SETTINGS = LogSettings(delete=True, retention_ms=1)
NAME = "00000000000000000000"
EPOCH_AT = 12


def sealed(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    for number in range(3):
        produce(log, batch(2, timestamp=NOW_MS + 10 * number))
    log.roll(NOW_MS)
    produce(log, batch(2))
    flush(log)
    logs.close_clean({}, synced=True)


def reopened(disk: MemoryDisk) -> Log:
    disk.kill()
    log = open_logs(disk.directory(), settings=SETTINGS).log("t", 0)
    assert log is not None
    return log


def test_an_offset_no_index_can_hold_is_damage_for_whoever_makes_the_index_again() -> None:
    """The upper half of a base offset lies outside the batch's checksum."""
    disk = MemoryDisk()
    sealed(disk)
    place = disk.directory().directory("t-0")
    for suffix in (".index", ".timeindex"):
        place.content(NAME + suffix)[:] = b"broken"
    content = place.content(f"{NAME}.log")
    content[2 * (len(content) // 3) + 2] ^= 1
    log = reopened(disk)
    told: list[str] = []
    Sweep([(log, log.end)]).step(NOW_MS + 100, lambda _, reason: told.append(reason))
    assert len(told) == 1
    with pytest.raises(CorruptError):
        log.segments[0].load_indexes()


@pytest.mark.parametrize("marker", [2**63 - 1, -(2**63)])
def test_an_aborted_transaction_of_an_impossible_offset_is_damage(marker: int) -> None:
    place = MemoryDisk().directory()
    place.make()
    name = f"{NAME}.txnindex"
    place.replace(name, encode_aborted([Aborted(min(marker, 0), 7, marker, 0)]))
    with pytest.raises(CorruptError):
        TxnIndex(place, name, is_new=False).load(0, 10)


def test_a_batch_of_an_epoch_later_than_the_log_was_closed_with_is_damage() -> None:
    """Its leader may write in the epoch it has, and a log never goes back to an earlier one."""
    disk = MemoryDisk()
    sealed(disk)
    place = disk.directory().directory("t-0")
    place.unlink("leader-epoch-checkpoint")
    place.content("00000000000000000006.log")[EPOCH_AT + 2] ^= 1
    log = reopened(disk)
    log.begin_epoch(3)
    with pytest.raises(CorruptError, match="epoch"):
        produce(log, batch(1), epoch=3)
