"""Logs for the programs that measure the log engine by itself."""

import os

from tidelog.kernel.ids import Incarnation, Uuid
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.ownership import Owner
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.records import Record, build_batch

OWNER = Owner("bench-cluster-00000000", 0, "boot", 0, Incarnation(1), Uuid(bytes(16)))
NOW_MS = 1_700_000_000_000
_RECORDS = 80
_RECORD_OVERHEAD_BYTES = 12


def batch_of(size_bytes: int, *, records: int = _RECORDS) -> bytearray:
    """Records that fill the batch, as a busy producer's would."""
    value_bytes = max(1, size_bytes // records - _RECORD_OVERHEAD_BYTES)
    return build_batch(
        [Record(at, NOW_MS + at, None, os.urandom(value_bytes), ()) for at in range(records)]
    )


def new_log(path: str, settings: LogSettings) -> Log:
    """An empty log in a log directory of its own."""
    logs = LogDirectory(open_disk(path), OWNER)
    logs.open(lambda _: settings, NOW_MS)
    return logs.create("bench", 0, Uuid(bytes(range(16))), settings)
