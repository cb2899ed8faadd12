"""How long a broker takes to bring 1 GiB of log back after kill -9, in 16 KiB batches.

A child appends without flushing and kills itself in mid-life; the start that follows is timed. The
page cache is warm, as it is after a kill. Prints one line of JSON.
"""

import argparse
import json
import os
import resource
import signal
import tempfile
import time
from pathlib import Path

from tidelog.kernel.ids import Incarnation, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import MIB
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.ownership import Owner
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.records import Record, build_batch

SETTINGS = LogSettings()
OWNER = Owner("bench-cluster-00000000", 0, "boot", 0, Incarnation(1), Uuid(bytes(16)))
NOW_MS = 1_700_000_000_000


def batch_of(size_bytes: int) -> bytearray:
    """Eighty records that fill the batch, as a busy producer's would."""
    records = [
        Record(at, NOW_MS + at, None, os.urandom(size_bytes // 80 - 12), ()) for at in range(80)
    ]
    return build_batch(records)


def fill(path: str, total_bytes: int, batch_bytes: int) -> None:
    """What the broker that is about to be killed writes."""
    logs = LogDirectory(open_disk(path), OWNER)
    logs.open(lambda _: SETTINGS, NOW_MS)
    log = logs.create("bench", 0, Uuid(bytes(range(16))), SETTINGS)
    template = batch_of(batch_bytes)
    rules = rules_of(SETTINGS)
    while log.size_bytes < total_bytes:
        view = memoryview(bytearray(template))
        header = validate_produced(view, rules, NOW_MS)
        log.append_as_leader(Instant(0), NOW_MS, view, header, 0)


def killed_after_filling(path: str, total_bytes: int, batch_bytes: int) -> None:
    child = os.fork()
    if child == 0:
        fill(path, total_bytes, batch_bytes)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child was to be killed"


def recover_once(path: str) -> dict[str, float]:
    cpu = time.process_time()
    start = time.perf_counter()
    logs = LogDirectory(open_disk(path), OWNER)
    logs.open(lambda _: SETTINGS, NOW_MS)
    seconds = time.perf_counter() - start
    (recovered,) = logs.recovered
    assert recovered.cut is None
    assert not logs.offline
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "bytes": recovered.bytes_scanned,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        path = f"{scratch}/log0"
        killed_after_filling(path, asked.mib * MIB, asked.batch_bytes)
        runs = [recover_once(path) for _ in range(asked.runs)]
    best = min(runs, key=lambda run: run["seconds"])
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line = {
        "bench": "recovery",
        "batch_bytes": asked.batch_bytes,
        **best,
        "all_seconds": [run["seconds"] for run in runs],
        "target_seconds": 1.5,
        "peak_memory_mib": memory_mib,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
