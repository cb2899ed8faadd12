"""Where a replicated produce request spends processor time: by process, and there by kind of work.

Three brokers, three replicas, one producer of bare sockets into one partition: broker 0 leads, the
others follow. Processor time is measured first; then the same load runs again under `perf`, which
says what the processors were doing; its own cost is in no figure. Without perf, or where it is not
allowed, processes alone are told. Python's functions are not told apart: `py-spy record` does that.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cluster_wide import REPLICAS_MAX, Views
from clusters import Cluster, running
from measuring import (
    MB,
    Arguments,
    Figures,
    Meter,
    middle,
    repeat,
    report,
    thread_cpu_s,
    tree,
    versions,
    warm_memory,
)
from pipelines import Pipeline, open_pipelines, pump

_TOPIC = "hot"
_FREQUENCY = 1999
ROLES = {"tide-broker0": "leader", "tide-coord": "coordinator", "tide-supervisor": "supervisor"}
"""By the name of a process; any other broker follows."""

KERNEL_KINDS = (
    ("log write", ("pwrite",)),
    ("sendfile", ("sendfile",)),
    ("receive", ("recv", "sys_read")),
    ("send", ("send", "sys_write")),
    ("waiting and waking", ("epoll", "poll", "futex", "eventfd", "sched", "idle", "nanosleep")),
    ("page faults", ("page_fault",)),
)
"""By a part of the name of any kernel function on the way, the first that fits."""
OWN_KINDS = (
    ("checksum", ("crc32c",)),
    ("ZeroMQ", ("zmq",)),
    ("event loop", ("uvloop",)),
    ("copy in memory", ("memcpy", "memmove")),
    ("Python", ("python",)),
)
"""By a part of the name of the library, or of the function, that was running."""


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["hot_path.py", "hot_path.py --bytes 1000000 --seconds 3"], runs=3
    )
    asked.add_argument("--bytes", type=int, default=16_384, help="of a request's batch (16384)")
    asked.add_argument("--in-flight", type=int, default=5, help="requests under way (5)")
    asked.add_argument("--seconds", type=float, default=4.0, help="of each run (4)")
    asked.add_argument("--mb", type=int, default=1500, help="each run writes at most (1500)")
    asked.add_argument("--no-perf", action="store_true", help="processes alone")
    return asked


# -- by process -----------------------------------------------------------------------------------


def roles(cluster: Cluster) -> dict[int, str]:
    """What each process of the cluster is."""
    names = {
        pid: Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        for pid in tree(cluster.pids)
    }
    return {pid: ROLES.get(name, "followers") for pid, name in names.items()}


def role_cpu_s(of: dict[int, str]) -> dict[str, float]:
    spent = dict.fromkeys(of.values(), 0.0)
    for pid, role in of.items():
        spent[role] += sum(thread_cpu_s([pid]).values())
    return spent


def one(cluster: Cluster, pipelines: Sequence[Pipeline], asked: argparse.Namespace) -> Figures:
    of = roles(cluster)
    bytes_max = round(asked.mb * MB)
    pump(pipelines, in_flight=asked.in_flight, seconds=min(1.0, asked.seconds / 4))
    warm_memory(bytes_max * REPLICAS_MAX)
    meter, before = Meter(cluster.pids), role_cpu_s(of)
    answered = pump(
        pipelines,
        in_flight=asked.in_flight,
        seconds=asked.seconds,
        requests_max=bytes_max // pipelines[0].value_bytes,
    )
    spent, figures = role_cpu_s(of), meter.stop()
    each = {
        f"{role}_ms": round(1000 * (spent[role] - before[role]) / answered, 4)
        for role in sorted(spent)
    }
    kinds = {} if asked.no_perf else by_kind(of, pipelines, asked)
    return {
        **figures,
        "requests_per_s": round(answered / figures["wall_s"]),
        **each,
        "kinds": {
            role: {kind: round(share * each[f"{role}_ms"], 4) for kind, share in shares.items()}
            for role, shares in kinds.items()
        },
    }


# -- by kind of work ------------------------------------------------------------------------------


def by_kind(
    of: dict[int, str], pipelines: Sequence[Pipeline], asked: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Which share of its processor time each role spent on what; empty where perf cannot say."""
    perf = shutil.which("perf")
    if perf is None:
        return {}
    with tempfile.NamedTemporaryFile(prefix="bench-perf-") as file:
        record = [perf, "record", "-q", "-g", "-e", "cpu-clock", "-F", str(_FREQUENCY)]
        record += ["-o", file.name, "-p", ",".join(map(str, of))]
        with subprocess.Popen(record, stdout=sys.stderr, stderr=subprocess.DEVNULL) as recorder:
            pump(
                pipelines,
                in_flight=asked.in_flight,
                seconds=asked.seconds / 2,
                requests_max=round(asked.mb * MB) // pipelines[0].value_bytes,
            )
            recorder.terminate()
        said = subprocess.run(
            [perf, "script", "-i", file.name, "-F", "pid,ip,sym,dso"],
            capture_output=True,
            text=True,
            check=False,
        )
    return shares_of(of, samples(said.stdout.splitlines()))


def samples(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """From what perf prints: the process, and the functions on the stack, the running one first."""
    pid, frames = 0, list[str]()
    for line in lines:
        words = line.split(maxsplit=1)
        if not words:
            if frames:
                yield pid, frames
            frames = []
        elif line[0].isspace() and len(words) > 1:
            frames.append(words[1])
        else:
            pid = int(words[0])
    if frames:
        yield pid, frames


def shares_of(
    of: dict[int, str], found: Iterable[tuple[int, list[str]]]
) -> dict[str, dict[str, float]]:
    counts: dict[str, Counter[str]] = {}
    for pid, frames in found:
        counts.setdefault(of.get(pid, "others"), Counter())[kind_of(frames)] += 1
    return {
        role: {kind: count / kinds.total() for kind, count in kinds.most_common()}
        for role, kinds in sorted(counts.items())
    }


def kind_of(frames: Sequence[str]) -> str:
    """What a moment was spent on: the system call if it was in one, else the library."""
    if "kernel" in frames[0]:
        kernel = [frame for frame in frames if "kernel" in frame]
        found = _named(KERNEL_KINDS, kernel)
        return f"kernel: {found or 'else'}"
    return _named(OWN_KINDS, frames[:1]) or "else"


def _named(kinds: Iterable[tuple[str, Sequence[str]]], frames: Sequence[str]) -> str | None:
    for kind, parts in kinds:
        if any(part in frame for part in parts for frame in frames):
            return kind
    return None


def run(asked: argparse.Namespace) -> None:
    with running(brokers=REPLICAS_MAX) as cluster:
        with Views([cluster.bootstrap.split(",", maxsplit=1)[0]]) as view:
            view.create(_TOPIC, 1, first=range(REPLICAS_MAX))
            view.wait_led(_TOPIC, 1)
        with open_pipelines(cluster, _TOPIC, batch_bytes=asked.bytes) as pipelines:
            runs = repeat(asked, lambda: one(cluster, pipelines, asked))
    names = ["requests_per_s"]
    names += [
        name for name in runs[0] if name.removesuffix("_ms") in {*ROLES.values(), "followers"}
    ]
    settings = {
        "brokers": REPLICAS_MAX,
        "replication": REPLICAS_MAX,
        "request_bytes": asked.bytes,
        "in_flight": asked.in_flight,
        "versions": versions("uvloop", "pyzmq"),
    }
    figures = {name: middle(runs, name, 4) for name in names}
    report("hot_path", settings, {**figures, "kinds": runs[-1]["kinds"]}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
