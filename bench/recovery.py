"""How long a broker takes to bring 1 GiB of log back after kill -9, in 16 KiB batches.

A child appends without flushing and kills itself in mid-life; the start that follows is timed. The
page cache is warm, as it is after a kill.
"""

import argparse
import os
import resource
import signal
import tempfile
import time

from log_filling import NOW_MS, OWNER, batch_of, new_log
from measuring import Arguments, Figures, Meter, middle, repeat, report
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import MIB
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.node.runtime.disk import open_disk

SETTINGS = LogSettings()
_NAMES = ("seconds", "cpu_seconds", "bytes", "peak_memory_mib")
GOALS = {"seconds": 1.5}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["recovery.py", "recovery.py --mib 256 --batch-bytes 1000000"])
    asked.add_argument("--mib", type=int, default=1024, help="size of the log (1024)")
    asked.add_argument("--batch-bytes", type=int, default=16_384, help="of a batch (16384)")
    return asked


def fill(path: str, total_bytes: int, batch_bytes: int) -> None:
    """What the broker that is about to be killed writes."""
    log = new_log(path, SETTINGS)
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


def recover_once(path: str) -> Figures:
    meter = Meter([])
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
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "other_share": meter.stop()["other_share"],
    }


def run(asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        path = f"{scratch}/log0"
        killed_after_filling(path, asked.mib * MIB, asked.batch_bytes)
        runs = repeat(asked, lambda: recover_once(path))
    figures = {name: middle(runs, name) for name in _NAMES}
    settings = {"mib": asked.mib, "batch_bytes": asked.batch_bytes}
    report("recovery", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
