"""What it would cost to write a log through a mapping of its file instead of by `pwritev`.

Each way appends the same batches to a file of its own, in a process of its own, one way after the
other in each run: by one `pwritev` a batch; into a mapping of a file that was made longer first;
into one whose blocks were allocated first. Then the same, each batch on stable storage before the
next. And what comes of a full disk and of a file that was cut, where a signal may come of it.
"""

import argparse
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measuring import (
    GB,
    MB,
    Arguments,
    Figures,
    Meter,
    middle,
    percentile,
    repeat,
    report,
    versions,
    warm_memory,
)
from tidelog.kernel.limits import MIB

WAYS = ("pwritev", "mapped", "mapped_allocated")
_FIGURES = ("mb_per_s", "cpu_s_per_gb", "faults_per_mb", "p50_us", "p99_us", "max_ms")
_SYNCED = ("synced_p50_ms", "synced_p99_ms", "synced_max_ms")
_WINDOW = 64 * MIB
"""So much is mapped, and the file made longer by it, at one time."""
_FULL_DISK_BYTES = MIB
_SIGNAL_BASE = 128

Append = Callable[[bytes], int]
"""Gives where the batch begins."""
Sync = Callable[[int, int], None]


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["mapped_writes.py", "mapped_writes.py --batch-bytes 1000000"])
    asked.add_argument("--mib", type=int, default=256, help="bytes of each way, in MiB (256)")
    asked.add_argument("--batch-bytes", type=int, default=16_384, help="of a batch (16384)")
    asked.add_argument("--synced", type=int, default=200, help="batches synced one by one (200)")
    asked.add_argument("--fill", nargs=2, metavar=("FOLDER", "WAY"), help=argparse.SUPPRESS)
    return asked


class _Mapped:
    """Appends into windows of the file."""

    def __init__(self, fd: int, *, allocated: bool) -> None:
        self._fd = fd
        self._allocated = allocated
        self._end = 0
        self._from = -_WINDOW
        self._window: mmap.mmap | None = None

    def append(self, batch: bytes) -> int:
        begun, done = self._end, 0
        while done < len(batch):
            if self._end >= self._from + _WINDOW:
                self._next()
            at = self._end - self._from
            part = min(len(batch) - done, _WINDOW - at)
            assert self._window is not None
            self._window[at : at + part] = batch[done : done + part]
            self._end += part
            done += part
        return begun

    def _next(self) -> None:
        self._from += _WINDOW
        if self._allocated:
            os.posix_fallocate(self._fd, self._from, _WINDOW)
        else:
            os.ftruncate(self._fd, self._from + _WINDOW)
        self._window = mmap.mmap(self._fd, _WINDOW, offset=self._from)

    def sync(self, _start: int, _size: int) -> None:
        """As for a file that is written: pages of a mapping are the file's."""
        os.fdatasync(self._fd)


class _Written:
    """Appends by one call each."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = 0

    def append(self, batch: bytes) -> int:
        begun = self._end
        self._end += os.pwritev(self._fd, (batch,), begun)
        assert self._end == begun + len(batch)
        return begun

    def sync(self, _start: int, _size: int) -> None:
        os.fdatasync(self._fd)


def way_of(name: str, fd: int) -> _Written | _Mapped:
    return _Written(fd) if name == "pwritev" else _Mapped(fd, allocated=name != "mapped")


def one(asked: argparse.Namespace) -> Figures:
    warm_memory(asked.mib * MIB)
    meter = Meter([])
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name in WAYS:
            figures = in_a_process(lambda name=name: _measure(asked, folder, name))  # type: ignore[misc] # a default binds it now
            found |= {f"{name}_{figure}": value for figure, value in figures.items()}
    return {**found, "other_share": meter.stop()["other_share"]}


def in_a_process(work: Callable[[], Figures]) -> Figures:
    """Its page faults and its signals are its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        with os.fdopen(writer, "w") as answer:
            answer.write(json.dumps(work()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    figures: Figures = json.loads(text)
    return figures


def _measure(asked: argparse.Namespace, folder: str, name: str) -> Figures:
    batch = os.urandom(asked.batch_bytes)
    count = max(1, asked.mib * MIB // len(batch))
    path = Path(folder, name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    way = way_of(name, fd)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    took = _appended(way.append, batch, count)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    size = count * len(batch)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    os.fdatasync(fd)
    synced = _synced(way.append, way.sync, batch, asked.synced)
    os.close(fd)
    path.unlink()
    return {
        "mb_per_s": round(size / MB / wall, 1),
        "cpu_s_per_gb": round(cpu / (size / GB), 3),
        "faults_per_mb": round((after.ru_minflt - before.ru_minflt) / (size / MB), 2),
        "p50_us": round(1e6 * percentile(took, 0.50), 1),
        "p99_us": round(1e6 * percentile(took, 0.99), 1),
        "max_ms": round(1e3 * max(took), 2),
        "synced_p50_ms": round(1e3 * percentile(synced, 0.50), 3),
        "synced_p99_ms": round(1e3 * percentile(synced, 0.99), 3),
        "synced_max_ms": round(1e3 * max(synced), 2),
    }


def _appended(append: Append, batch: bytes, count: int) -> list[float]:
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        append(batch)
        took.append(time.perf_counter() - begun)
    return took


def _synced(append: Append, sync: Sync, batch: bytes, count: int) -> list[float]:
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        sync(append(batch), len(batch))
        took.append(time.perf_counter() - begun)
    return took


# -- what goes wrong


def full_disk() -> Figures:
    """On a file system of 1 MiB in memory, which needs the right to mount one: else unknown."""
    return {f"{name}_on_a_full_disk": _ended(name, _filling) for name in WAYS}


def _filling(name: str, folder: str) -> list[str]:
    again = f"{sys.executable} {Path(__file__).resolve()} --fill {folder} {name}"
    mount = f"mount -t tmpfs -o size={_FULL_DISK_BYTES} none {folder}"
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f"{mount} && exec {again}",
    ]


def _ended(name: str, words: Callable[[str, str], list[str]]) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            done = subprocess.run(words(name, folder), capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return "unknown"
    return _how(done.returncode, done.stdout.strip())


def _how(code: int, said: str) -> str:
    """A signal's name, or what the process said."""
    number = code - _SIGNAL_BASE if code > _SIGNAL_BASE else -code
    if code < 0 or code > _SIGNAL_BASE:
        return signal.Signals(number).name
    return said or "unknown"


def fill(folder: str, name: str) -> None:
    """Until the disk is full; says how it was told."""
    batch = bytes(16_384)
    fd = os.open(Path(folder, name), os.O_RDWR | os.O_CREAT)
    try:
        way = way_of(name, fd)
        for _ in range(2 * _FULL_DISK_BYTES // len(batch)):
            way.append(batch)
    except OSError as error:
        print(error.strerror)


def cut_file() -> Figures:
    """Somebody makes the file shorter than what is written to next."""
    return {f"{name}_on_a_cut_file": _cut(name) for name in WAYS}


def _cut(name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        pid = os.fork()
        if not pid:
            fd = os.open(Path(folder, name), os.O_RDWR | os.O_CREAT)
            way = way_of(name, fd)
            way.append(bytes(MIB))
            os.ftruncate(fd, 0)
            way.append(bytes(MIB))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
    return _how(os.waitstatus_to_exitcode(status), "is written")


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {"mib": asked.mib, "batch_bytes": asked.batch_bytes, "versions": versions()}
    names = [f"{way}_{name}" for way in WAYS for name in (*_FIGURES, *_SYNCED)]
    figures = {name: middle(runs, name) for name in names}
    report("mapped_writes", settings, {**figures, **full_disk(), **cut_file()}, runs)


if __name__ == "__main__":
    given = parser().parse_args()
    if given.fill:
        fill(*given.fill)
    else:
        run(given)
