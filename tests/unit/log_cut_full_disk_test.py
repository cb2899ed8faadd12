"""A log is cut while its disk is sick: what is gone is forgotten all the same."""

import errno

import pytest

from harness.log_batches import TOPIC_ID, flush, open_logs
from harness.log_transactions import Writer, known_of
from harness.memory_disk import MemoryDisk
from tidelog.kernel.failures import FailedSyncError
from tidelog.node.log.settings import LogSettings


@pytest.mark.parametrize("operation", ["replace", "sync"])
def test_who_wrote_what_is_cut_is_forgotten_though_the_disk_is_sick(operation: str) -> None:
    """Else its next batch would be refused as one that is there already, or has a gap before it."""
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    writer = Writer()
    writer.write(log, plain=True, epoch=0)
    before = known_of(log.producers)
    writer.write(log, plain=True, epoch=1)
    if operation == "sync":  # else nothing of it is durable, and no sync is wanted
        flush(log)
    disk.failing[operation] = errno.ENOSPC
    with pytest.raises(FailedSyncError if operation == "sync" else OSError, match="sick"):
        log.truncate_to(1)
    assert log.end == 1
    assert known_of(log.producers) == before
