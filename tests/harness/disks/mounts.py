"""File systems of a test's own: small, seen by it and its children only, gone with them.

The calling thread leaves the machine's mounts and comes back at the end; what it starts meanwhile
stays in. Nothing is left on the machine even where the test is killed.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.suite.need import need_that
from harness.suite.tidy_checks import ROOT
from tidelog.tools.supervisor.disks import lacking, this_machine

_CLONE_FS, _CLONE_NEWNS = 0x200, 0x0002_0000
_MS_RDONLY, _MS_REMOUNT = 1, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_LIBC = ctypes.CDLL(None, use_errno=True)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- where Linux has it
TEMPORARY = Path("/tmp")  # noqa: S108 -- hidden by a file system of the test's own


def _call(name: str, *words: object) -> None:
    if getattr(_LIBC, name)(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: Path, kind: str | None, flags: int, options: str = "") -> None:
    kind_bytes = None if kind is None else kind.encode()
    _call("mount", source.encode(), bytes(target), kind_bytes, flags, options.encode())


def need_mounts() -> None:
    """Skip, or fail where they are required, without the right to mount."""
    need_that("mount", works=os.geteuid() == 0 and _can_unshare(), why="needs to be root here")


def need_disks() -> None:
    """As `need_mounts`, and for disks of a cluster's own."""
    need_mounts()
    missing = lacking(this_machine())
    need_that("loop", works=missing is None, why=f"devices are not to be had here: {missing}")


def _can_unshare() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(_LIBC.unshare(_CLONE_NEWNS) != 0)
    return os.waitpid(pid, 0)[1] == 0


@contextmanager
def own_mounts() -> Iterator[None]:
    """Inside, mounts are this thread's and its children's."""
    here = Path.cwd()
    back = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", _CLONE_NEWNS)
        try:
            _mount("none", Path("/"), None, _MS_REC | _MS_PRIVATE)
            yield
        finally:
            _call("unshare", _CLONE_FS)  # threads that were started inside share it, which forbids
            _call("setns", back, _CLONE_NEWNS)
            os.chdir(here)
    finally:
        os.close(back)


def small_disk(place: Path, size_bytes: int) -> None:
    """An empty file system of that size; only inside `own_mounts`."""
    place.mkdir(parents=True, exist_ok=True)
    _mount("tidelog-test", place, "tmpfs", 0, f"size={size_bytes}")


def small_temporary(size_bytes: int) -> None:
    """An empty `/tmp`, but for the programs that run the tests: a checkout may lie there."""
    programs = [ROOT, *(Path(one) for one in {sys.prefix, sys.base_prefix})]
    kept = [
        (place, os.open(place, os.O_PATH))
        for place in programs
        if place.is_relative_to(TEMPORARY) and (place == ROOT or not place.is_relative_to(ROOT))
    ]
    small_disk(TEMPORARY, size_bytes)
    for place, descriptor in kept:
        place.mkdir(parents=True)
        _mount(f"/proc/self/fd/{descriptor}", place, None, _MS_BIND)
        os.close(descriptor)


def mount_over(source: Path, place: Path) -> None:
    """A file is seen at the place of another one; only inside `own_mounts`."""
    _mount(str(source), place, None, _MS_BIND)


def small_shared_memory(size_bytes: int) -> None:
    """So much shared memory and no more; what is there stays to be seen, for others live by it."""
    kept = [(path, path.is_dir(), os.open(path, os.O_PATH)) for path in SHARED_MEMORY.iterdir()]
    small_disk(SHARED_MEMORY, size_bytes)
    for path, is_folder, descriptor in kept:
        path.mkdir() if is_folder else path.touch()
        _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND)
        os.close(descriptor)


def fill(place: Path) -> Path:
    """Leave not one page free; the file to remove again."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            block = bytes(size)
            while True:
                try:
                    if file.write(block) < size:
                        break
                except OSError:
                    break
    return filler


def read_only(place: Path) -> None:
    """Nobody may write there, not even root; only inside `own_mounts`."""
    _mount(str(place), place, None, _MS_BIND)
    _mount("none", place, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
