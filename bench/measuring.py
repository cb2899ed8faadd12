"""Shared by the programs here: processor time and memory of processes, noise, one line of JSON."""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

CPUS = os.cpu_count() or 1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NS = 1e9
_CHUNK_BYTES = 1 << 20
_WHOLE = 0.9
"""So busy is as good as busy all the time: the shares are read a moment apart."""
GB = 1e9
MB = 1e6
WRITTEN_BYTES_MAX = 4 << 30
"""More than the fastest producer here writes in a run."""

Figures = dict[str, Any]

_ABOUT_RUNS = {"noisy", "other_share"}
"""Said of a run, and measured by none."""


class Arguments(argparse.ArgumentParser):
    """Help that begins with examples, and the flags every program has."""

    def __init__(self, question: str, examples: Sequence[str], *, runs: int = 3) -> None:
        super().__init__(description=question, formatter_class=argparse.RawTextHelpFormatter)
        self._examples = examples
        self.add_argument("--runs", type=int, default=runs, help=f"runs (default: {runs})")
        self.add_argument(
            "--noise",
            type=float,
            default=0.10,
            metavar="SHARE",
            help="a run is noisy if others used more than this share of the processors (0.10)",
        )
        self.add_argument(
            "--quiet-wait",
            type=float,
            default=20.0,
            metavar="S",
            help="wait so long for a quiet machine before each run (20)",
        )

    def format_help(self) -> str:
        shown = "".join(f"  {_typed(example)}\n" for example in self._examples)
        return f"examples:\n{shown}\n{super().format_help()}"


def _typed(example: str) -> str:
    """A program without a suffix starts Python itself."""
    name = example.split(maxsplit=1)[0]
    return f"python bench/{example}" if name.endswith(".py") else f"bench/{example}"


# -- processes ----------------------------------------------------------------------------------


def tree(roots: Iterable[int]) -> set[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """The fields behind the name; empty where the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(") ")[2].split()


def cpu_s(roots: Iterable[int]) -> float:
    """Processor seconds of the processes and their descendants, to the nanosecond if possible."""
    return sum(thread_cpu_s(tree(roots)).values())


def thread_cpu_s(pids: Iterable[int]) -> dict[int, float]:
    """Processor seconds of each thread of these processes."""
    found: dict[int, float] = {}
    for pid in pids:
        found |= _threads_of(pid)
    return found


def _threads_of(pid: int) -> dict[int, float]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {int(task.name): _on_cpu_ns(task) / _NS for task in tasks}
    except OSError:
        fields = _stat(pid)
        return {pid: (int(fields[11]) + int(fields[12])) * _TICK_S} if fields else {}


def _on_cpu_ns(task: Path) -> int:
    return int((task / "schedstat").read_text(encoding="ascii").split()[0])


def pss_mb(roots: Iterable[int]) -> dict[str, float]:
    """Memory of each process by its own right, in MB of 10^6 bytes, and of all."""
    sizes: dict[str, float] = {}
    for pid in sorted(tree(roots)):
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        kib = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        sizes[name] = round(sizes.get(name, 0.0) + kib * 1024 / MB, 2)
    return {**sizes, "all": round(sum(sizes.values()), 2)}


def busy_s() -> float:
    """Processor seconds anybody has used on this machine since it started."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    user, nice, system, _, _, irq, soft, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + soft + steal) * _TICK_S


class Meter:
    """From its making on: wall time, and processor time of the brokers, this client and others."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self._brokers = list(brokers)
        self._wall = time.monotonic()
        self._busy = busy_s()
        self._broker_threads = thread_cpu_s(tree(self._brokers))
        self._client_threads = thread_cpu_s(self._client())

    def stop(self) -> Figures:
        wall = time.monotonic() - self._wall
        brokers = _spent(self._broker_threads, thread_cpu_s(tree(self._brokers)))
        client = _spent(self._client_threads, thread_cpu_s(self._client()))
        brokers_s, client_s = sum(brokers), sum(client)
        busy = busy_s() - self._busy
        shares = {
            "machine_share": round(busy / (wall * CPUS), 3),
            "broker_thread_share": round(max(brokers, default=0.0) / wall, 3),
            "client_thread_share": round(max(client, default=0.0) / wall, 3),
        }
        return {
            "wall_s": round(wall, 3),
            "brokers_cpu_s": round(brokers_s, 4),
            "client_cpu_s": round(client_s, 4),
            "other_share": round(max(0.0, busy - brokers_s - client_s) / (wall * CPUS), 3),
            **shares,
            "limited_by": limited_by(shares),
        }

    def _client(self) -> set[int]:
        """The brokers may be children of this process: they are no part of the client."""
        return tree([os.getpid()]) - tree(self._brokers)


def _spent(before: dict[int, float], after: dict[int, float]) -> list[float]:
    return [cpu - before.get(thread, 0.0) for thread, cpu in after.items()]


def limited_by(shares: Figures) -> str:
    """What could not go faster: a thread that never rested, or all processors; else waiting."""
    if shares["client_thread_share"] >= _WHOLE:
        return "client"
    if shares["broker_thread_share"] >= _WHOLE:
        return "broker"
    return "processors" if shares["machine_share"] >= _WHOLE else "waiting"


# -- memory -------------------------------------------------------------------------------------


def warm_memory(size_bytes: int) -> float:
    """Have the machine own that much free memory; processor seconds per GB a plain write costs.

    A virtual machine that reports its free pages gives them back to its host: each page then costs
    a fault in the host at its first use, several times what writing to it costs, whoever writes.
    Pages that were used a moment ago do not. Without this the host would be measured. They stay
    with the machine for some seconds, so this is the last thing before a measurement.
    """
    with tempfile.TemporaryFile() as file:
        chunk = os.urandom(_CHUNK_BYTES)
        for at in range(0, size_bytes, _CHUNK_BYTES):
            os.pwrite(file.fileno(), chunk, at)
        os.ftruncate(file.fileno(), 0)
        spent, count = time.process_time(), 256
        for at in range(count):
            os.pwrite(file.fileno(), chunk, at * _CHUNK_BYTES)
        return round((time.process_time() - spent) / (count * _CHUNK_BYTES / GB), 3)


# -- runs ---------------------------------------------------------------------------------------


def wait_quiet(seconds_max: float, *, share: float = 0.08, known: Sequence[int] = ()) -> None:
    """Until no others than these use more than that share of the processors, or the time is up."""
    end = time.monotonic() + seconds_max
    while time.monotonic() < end:
        busy, began = busy_s() - cpu_s(known), time.monotonic()
        time.sleep(1.0)
        if (busy_s() - cpu_s(known) - busy) / ((time.monotonic() - began) * CPUS) < share:
            return


def repeat(asked: argparse.Namespace, one: Callable[[], Figures]) -> list[Figures]:
    """The figures of each run; the noisy ones are marked, not hidden."""
    runs = []
    for _ in range(asked.runs):
        wait_quiet(asked.quiet_wait)
        figures = one()
        figures["noisy"] = figures.get("other_share", 0.0) > asked.noise
        print(json.dumps(figures), file=sys.stderr, flush=True)
        runs.append(figures)
    return runs


def curve(
    asked: argparse.Namespace,
    sizes: Iterable[int],
    one: Callable[[int, argparse.Namespace], Figures],
) -> tuple[list[Figures], list[Figures]]:
    """One point for each size, the medians of its runs; and all the runs."""
    points: list[Figures] = []
    every: list[Figures] = []
    for size in sizes:
        runs = repeat(asked, partial(one, size, asked))
        every += runs
        points.append({name: middle(runs, name, 4) for name in runs[0] if name not in _ABOUT_RUNS})
    return points, every


def middle(runs: Sequence[Figures], name: str, digits: int = 3) -> float | None:
    """The median of a figure over the quiet runs; over all where none was quiet."""
    quiet = [run for run in runs if not run.get("noisy")] or runs
    values = [run[name] for run in quiet if run.get(name) is not None]
    return round(statistics.median(values), digits) if values else None


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank: the smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def machine() -> Figures:
    """What the figures were taken on."""
    return {
        "cpus": CPUS,
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def versions(*packages: str) -> dict[str, str]:
    return {name: version(name) for name in ("tidelog", *packages)}


def report(bench: str, settings: Figures, figures: Figures, runs: Sequence[Figures]) -> None:
    """The one line."""
    line = {
        "bench": bench,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **figures,
        "noisy": all(run.get("noisy", False) for run in runs),
        "settings": settings,
        "machine": machine(),
        "runs": list(runs),
    }
    print(json.dumps(line), flush=True)
