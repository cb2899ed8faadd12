"""Files that are read from outside are in the page cache afterwards only if they were before: its
broker sends unread what it wrote itself and what has stayed there since."""

import os
from pathlib import Path

import pytest

from harness.suite.need import need_that
from tidelog.node.runtime.page_cache import evict, resident
from tidelog.tools.log_files.read_only import ReadOnlyDirectory

PAGE = 4096
CONTENT = os.urandom(64 * PAGE)


def made(folder: Path) -> Path:
    """A file that only the disk has."""
    path = folder / "file"
    path.write_bytes(CONTENT)
    forget(path)
    works = not in_memory(path)
    need_that("a disk", works=works, why="is not behind the pages of tmpfs: use --basetemp")
    return path


def forget(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        evict(file.fileno(), 0, 0)


def in_memory(path: Path) -> int:
    """How many of its pages. To ask by a read that must not wait would bring them there."""
    with path.open("rb") as file:
        found = resident(file.fileno(), len(CONTENT))
    assert found is not None
    return found // PAGE


def test_what_had_to_come_from_the_disk_is_forgotten_again(tmp_path: Path) -> None:
    path = made(tmp_path)
    file = ReadOnlyDirectory(str(tmp_path)).open("file")
    buffer = bytearray(20 * PAGE)
    assert file.read_into(100, memoryview(buffer)) == len(buffer)
    assert bytes(buffer) == CONTENT[100 : 100 + len(buffer)]
    assert bytes(file.read(40 * PAGE - 50, 61)) == CONTENT[40 * PAGE - 50 :][:61]
    assert file.read_into(len(CONTENT) - 10, memoryview(buffer)) == 10
    assert bytes(buffer[:10]) == CONTENT[-10:]
    file.close()
    assert in_memory(path) == 0


def test_what_was_in_memory_stays_there(tmp_path: Path) -> None:
    path = made(tmp_path)
    with path.open("rb", buffering=0) as other:
        os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        other.read(8 * PAGE)
    assert in_memory(path) == 8
    file = ReadOnlyDirectory(str(tmp_path)).open("file")
    assert file.read_into(0, memoryview(bytearray(20 * PAGE))) == 20 * PAGE
    file.close()
    assert in_memory(path) == 8


def test_what_the_disk_was_quick_to_give_is_forgotten_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that must not wait may find what it has just had the kernel bring."""
    path = made(tmp_path)
    monkeypatch.setattr(os, "RWF_NOWAIT", 0)
    file = ReadOnlyDirectory(str(tmp_path)).open("file")
    assert file.read_into(0, memoryview(bytearray(5 * PAGE))) == 5 * PAGE
    file.close()
    assert in_memory(path) == 0
