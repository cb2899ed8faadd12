"""What appending costs the log alone: batches checked and written by the engine, no network.

Each run appends so many bytes in batches of one size, as a leader does for a producer, and says
what a plain write of the same batches costs beside it.
"""

import argparse
import os
import tempfile
import time

from log_filling import NOW_MS, batch_of, new_log
from measuring import (
    GB,
    MB,
    Arguments,
    Figures,
    Meter,
    middle,
    repeat,
    report,
    versions,
    warm_memory,
)
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import MIB
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_produced

_NAMES = ("mb_per_s", "cpu_s_per_gb", "us_per_batch", "plain_write_us_per_batch")
_EPOCH = 0


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["append.py", "append.py --batch-bytes 1000000 --mib 1024"])
    asked.add_argument("--mib", type=int, default=512, help="bytes to append, in MiB (512)")
    asked.add_argument("--batch-bytes", type=int, default=16_384, help="of a batch (16384)")
    return asked


def one(asked: argparse.Namespace) -> Figures:
    settings = LogSettings()
    template = batch_of(asked.batch_bytes)
    count = max(1, asked.mib * MIB // len(template))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = new_log(f"{folder}/log0", settings)
        rules = rules_of(settings)
        warm_memory(2 * count * len(template))
        plain = _plain_writes(folder, template, count)
        meter = Meter([])
        began = time.process_time()
        for _ in range(count):
            view = memoryview(bytearray(template))
            header = validate_produced(view, rules, NOW_MS)
            log.append_as_leader(Instant(0), NOW_MS, view, header, _EPOCH)
        cpu = time.process_time() - began
        figures = meter.stop()
    size = count * len(template)
    return {
        "wall_s": figures["wall_s"],
        "other_share": figures["other_share"],
        "batches": count,
        "mb_per_s": round(size / MB / figures["wall_s"], 1),
        "cpu_s_per_gb": round(cpu / (size / GB), 3),
        "us_per_batch": round(1e6 * cpu / count, 2),
        "plain_write_us_per_batch": round(1e6 * plain / count, 2),
    }


def _plain_writes(folder: str, template: bytearray, count: int) -> float:
    """Processor seconds of writing the batches to a file, one by one; copied first, as they are."""
    with tempfile.TemporaryFile(dir=folder) as file:
        began, position = time.process_time(), 0
        for _ in range(count):
            position += os.pwrite(file.fileno(), memoryview(bytearray(template)), position)
        return time.process_time() - began


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {"mib": asked.mib, "batch_bytes": asked.batch_bytes, "versions": versions("crc32c")}
    report("append", settings, {name: middle(runs, name) for name in _NAMES}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
