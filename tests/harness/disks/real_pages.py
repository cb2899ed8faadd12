"""Tests that look at real pages: of a disk, on a kernel that counts them."""

import os
from pathlib import Path

from harness.suite.need import need_that
from tidelog.node.runtime.page_cache import Cached, look


def need_disk(path: Path) -> None:
    """tmpfs has nothing behind its pages."""
    on_disk = kind_of_disk(path) != "tmpfs"
    need_that("a disk", works=on_disk, why="is not behind the pages of tmpfs: use --basetemp")


def kind_of_disk(path: Path) -> str:
    """The file system's name."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == number:
            return source.split()[0]
    return "unknown"


def need_cachestat(path: Path) -> None:
    """Dirty bytes are counted by it alone."""
    probe = path / "cachestat"
    probe.write_bytes(b"probe")
    found = look(probe, 5)
    probe.unlink()
    works = found is not None and found.dirty is not None
    need_that("cachestat", works=works, why="is not in this kernel")


def pages(path: str | Path) -> Cached:
    """Of a file that is there."""
    found = look(path, Path(path).stat().st_size)
    assert found is not None
    return found
