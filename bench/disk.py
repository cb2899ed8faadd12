"""How long `tidelog disk` takes where a broker has many segments: the look alone, and the command.

No cluster runs: a broker's folder is filled, with a durability ledger that knows every file.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from log_filling import batch_of
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from tidelog.node.ipc.ledger_memory import LedgerMemory, remove_ledger
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.disk import open_disk
from tidelog.node.runtime.ledger import Ledger
from tidelog.tools.disk_look import Wanted, look
from tidelog.tools.log_files.data_folder import Folder
from tidelog.wire.log_files import LOG_SUFFIX, file_name

_OWNER = "broker-0"
_PARTITIONS = 10
_BATCH = memoryview(batch_of(16_384))


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["disk.py", "disk.py --segments 10000"])
    asked.add_argument("--segments", type=int, default=1_000, help="in 10 partitions (1000)")
    return asked


def one(asked: argparse.Namespace) -> Figures:
    run_id = os.urandom(4).hex()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder)
        try:
            _fill(data, run_id, asked.segments)
            meter = Meter([])
            began = time.perf_counter()
            (broker,) = look(Folder(data, None, MetadataImage()), Wanted())
            seen_s = time.perf_counter() - began
            assert sum(len(found.segments) for found in broker.replicas) == asked.segments
            return {
                "look_s": round(seen_s, 4),
                **_command(data),
                "other_share": meter.stop()["other_share"],
            }
        finally:
            remove_ledger(run_id, _OWNER)


def _fill(data: Path, run_id: str, segments: int) -> None:
    """Nothing of it is synced, so that the ledger has a row for each file and each name."""
    top = str(data / "broker-0" / "log0")
    memory = LedgerMemory.open(run_id, _OWNER, "boot")
    assert memory is not None
    Path(top).parent.mkdir()
    place = open_disk(top, open_files_max=64, ledger=Ledger(memory, [top], lambda: None))
    place.make()
    for number in range(segments):
        partition = place.directory(f"bench-{number % _PARTITIONS}")
        partition.make()
        file = partition.open(file_name(number, LOG_SUFFIX))
        file.append((_BATCH,))
        file.close()
    run = {"run_id": run_id, "pid": 1, "cluster": "bench", "runtime_dir": "", "bootstrap": ""}
    (data / "run.json").write_text(json.dumps({**run, "data_dir": str(data)}), encoding="utf-8")
    (data / "cluster.json").write_text("{}", encoding="utf-8")


def _command(data: Path) -> Figures:
    """By the clock, and what it took of a processor, whoever else wanted one."""
    words = ["-m", "tidelog.tools", "disk", "--segments", "--json", "--data", str(data)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    took_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command_s": round(took_s, 4), "command_cpu_s": round(cpu_s, 4)}


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {"segments": asked.segments, "versions": versions("posix_ipc")}
    figures = {name: middle(runs, name) for name in ("look_s", "command_s", "command_cpu_s")}
    report("disk", settings, figures, runs)


if __name__ == "__main__":
    run(parser().parse_args())
