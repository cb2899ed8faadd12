"""What the page cache has of a file, asked of the real kernel."""

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.real_pages import need_disk
from harness.suite.need import need_that
from tidelog.node.runtime import page_cache
from tidelog.node.runtime.page_cache import (
    TRIGGERS,
    Cached,
    cached,
    cached_from,
    evict,
    forget,
    kernel_view,
    look,
    resident,
    write_back,
)

PAGES = 25
SIZE = PAGES * mmap.PAGESIZE


@pytest.fixture
def written(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a file that was written and not synced."""
    need_disk(tmp_path)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for _ in range(PAGES):  # one by one: what a call writes, the kernel may keep as one piece
        os.write(descriptor, bytes(mmap.PAGESIZE))
    yield descriptor
    os.close(descriptor)


def need_cachestat(descriptor: int) -> Cached:
    """This kernel's answer where it knows the call."""
    found = cached(descriptor, SIZE)
    assert found is not None
    need_that("cachestat", works=found.dirty is not None, why="is not in this kernel")
    return found


def test_what_is_written_is_dirty_until_it_is_synced(written: int) -> None:
    assert need_cachestat(written) == Cached(SIZE, SIZE)
    os.fdatasync(written)
    assert cached(written, SIZE) == Cached(SIZE, 0)


def test_what_is_dropped_is_not_cached(written: int) -> None:
    os.fdatasync(written)
    evict(written, 0, 0)
    found = cached(written, SIZE)
    assert found is not None
    assert found.cached == 0
    os.pread(written, 1, 0)
    again = cached(written, SIZE)
    assert again is not None
    assert again.cached >= mmap.PAGESIZE


def test_what_is_given_to_the_disk_is_dirty_no_more_and_still_there(written: int) -> None:
    need_cachestat(written)
    half = PAGES // 2 * mmap.PAGESIZE
    assert write_back(written, 0, half, wait=True)
    assert cached(written, SIZE) == Cached(SIZE, SIZE - half)


def test_without_waiting_it_is_on_its_way(written: int) -> None:
    need_cachestat(written)
    assert write_back(written, 0, SIZE, wait=False)
    assert write_back(written, 0, SIZE, wait=True)
    assert cached(written, SIZE) == Cached(SIZE, 0)


def test_what_is_forgotten_was_written_before(written: int) -> None:
    assert cached(written, SIZE) == need_cachestat(written)
    half = PAGES // 2 * mmap.PAGESIZE
    assert forget(written, 0, half)
    assert cached(written, SIZE) == Cached(SIZE - half, SIZE - half)
    assert os.pread(written, SIZE, 0) == bytes(SIZE)


def test_what_is_no_file_on_a_disk_is_left_alone() -> None:
    reader, writer = os.pipe()
    assert not write_back(writer, 0, 1, wait=True)
    assert not forget(writer, 0, 1)
    os.close(reader)
    os.close(writer)


def test_what_could_not_be_written_is_told(written: int) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_back(-1, 0, 1, wait=True)
    assert write_back(written, 0, 1, wait=True)


def test_a_part_of_a_page_counts_as_far_as_the_file_goes(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    found = look(tmp_path / "short", 3)
    assert found is not None
    assert found.cached == 3
    assert found.dirty in {0, 3, None}, "as far as this kernel and this disk tell"


def test_an_old_kernel_says_what_is_cached_and_not_what_is_dirty(
    written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_CACHESTAT", 1_000_000)
    assert cached(written, SIZE) == Cached(SIZE, None)
    os.fdatasync(written)
    evict(written, 0, 0)
    assert cached(written, SIZE) == Cached(0, None)


def test_both_calls_count_the_same_pages(written: int) -> None:
    assert resident(written, SIZE) == need_cachestat(written).cached


def test_an_empty_file_and_one_that_has_gone(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert look(tmp_path / "empty", 0) == Cached(0, 0)
    assert look(tmp_path / "gone", 10) is None


def test_the_kernel_tells_its_triggers() -> None:
    found = kernel_view()
    assert found.triggers.keys() == set(TRIGGERS)
    assert found.triggers["dirty_expire_centisecs"] > 0
    assert found.dirty is not None
    assert found.writeback is not None


def test_a_machine_that_tells_nothing_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_VM", tmp_path)
    monkeypatch.setattr(page_cache, "_MEMINFO", tmp_path / "meminfo")
    found = kernel_view()
    assert (dict(found.triggers), found.dirty, found.writeback) == ({}, None, None)


def test_what_the_kernel_is_busy_with_is_asked_for_again(
    written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_cachestat(written)
    os.fdatasync(written)
    asked: list[int] = []
    advise = os.posix_fadvise

    def is_busy_twice(descriptor: int, start: int, size: int, advice: int) -> None:
        asked.append(advice)
        if len(asked) > 2:
            advise(descriptor, start, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", is_busy_twice)
    assert evict(written, mmap.PAGESIZE, 3 * mmap.PAGESIZE)
    assert len(asked) >= 3
    found = cached(written, SIZE)
    assert found is not None
    assert found.cached == SIZE - 3 * mmap.PAGESIZE
    assert evict(written, 0, 0)
    assert resident(written, SIZE) == 0


def test_what_has_no_disk_cannot_be_evicted() -> None:
    """Nothing is lost by it, and nobody waits for ever."""
    memory = Path("/dev/shm")  # noqa: S108 -- a file system without a disk is wanted
    need_that("a file system in memory", works=memory.is_dir(), why="is not at /dev/shm")
    with tempfile.TemporaryFile(dir=memory) as file:
        file.write(bytes(SIZE))
        file.flush()
        assert not evict(file.fileno(), 0, 0)
        assert resident(file.fileno(), SIZE) == SIZE


def test_the_first_bytes_that_are_in_memory_are_counted(written: int) -> None:
    need_cachestat(written)
    os.fdatasync(written)
    page = mmap.PAGESIZE
    for missing in (0, 1, 7, PAGES - 1):
        os.pread(written, SIZE, 0)
        assert cached_from(written, 0, SIZE) == SIZE
        assert evict(written, missing * page, page)
        assert cached_from(written, 0, SIZE) == missing * page
        assert cached_from(written, 100, SIZE - 100) == max(0, missing * page - 100)
