"""The real disk: few descriptors, files that move, content that is old or new but never mixed."""

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.disks.memory_disk import MemoryDisk
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.files import Bytes, Directory
from tidelog.node.runtime.disk import DirectoryLock, DiskDirectory, DiskFile, open_disk


@pytest.fixture
def place(tmp_path: Path) -> DiskDirectory:
    directory = open_disk(str(tmp_path / "log0"), open_files_max=3)
    directory.make()
    return directory


def open_descriptors(place: Directory) -> int:
    targets = [str(entry.resolve()) for entry in Path("/proc/self/fd").iterdir()]
    return sum(target.startswith(place.path) for target in targets)


def test_a_directory_of_logs_is_its_owners_alone_also_one_that_was_open_to_others(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old"
    old.mkdir(mode=0o755)
    for path in (old, tmp_path / "new"):
        top = open_disk(str(path))
        top.make()
        partition = top.directory("t-0")
        partition.make()
        partition.open("0.log").append([b"x"])
        (file,) = (path / "t-0").iterdir()
        assert [p.stat().st_mode & 0o077 for p in (path, path / "t-0", file)] == [0, 0, 0]


def test_more_files_than_descriptors_can_be_used(place: DiskDirectory) -> None:
    files = [place.open(f"f{number}") for number in range(10)]
    for _ in range(3):
        for number, file in enumerate(files):
            file.append([b"x" * number, b"y"])
            assert open_descriptors(place) <= 3
    for number, file in enumerate(files):
        assert bytes(file.read(0, 100)) == (b"x" * number + b"y") * 3
        file.close()
    assert open_descriptors(place) == 0
    files[4].append([b"again"])
    assert files[4].size == 3 * 5 + 5
    files[4].close()


def test_the_file_used_last_keeps_its_descriptor(place: DiskDirectory) -> None:
    busy = place.open("busy")
    for number in range(20):
        busy.append([b"x"])
        place.open(f"f{number}")
        assert busy.fileno() >= 0
    assert busy.size == 20


def test_a_file_goes_on_after_its_directory_moved(place: DiskDirectory) -> None:
    inner = place.directory("t-0")
    inner.make()
    file = inner.open("a")
    file.append([b"one"])
    file.release()
    inner.move("t-0.x-delete")
    file.append([b"two"])
    assert place.names() == ["t-0.x-delete"]
    assert bytes(file.read(0, 10)) == b"onetwo"
    assert inner.parent is place
    file.close()
    place.remove_tree("t-0.x-delete")
    assert place.names() == []


@pytest.fixture(params=["real", "memory"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """Both kinds of disk must behave alike."""
    directory: Directory
    if request.param == "real":
        directory = open_disk(str(tmp_path / "log0"))
    else:
        directory = MemoryDisk().directory("log0")
    directory.make()
    directory.make()
    return directory


def test_bytes_written_are_bytes_read(either: Directory) -> None:
    file = either.open("f")
    assert file.append([b"abc", memoryview(b"def")]) == 6
    file.write_at(1, b"XY")
    assert (file.name, file.size) == ("f", 6)
    assert bytes(file.read(1, 3)) == b"XYd"
    assert bytes(file.read(4, 100)) == b"ef"
    assert bytes(file.read(99, 1)) == b""
    buffer = memoryview(bytearray(4))
    assert file.read_into(3, buffer) == 3
    assert bytes(buffer[:3]) == b"def"
    file.truncate(2)
    file.truncate(4)
    assert bytes(file.read(0, 9)) == b"aX\x00\x00"
    file.sync()
    either.sync()
    either.syncable("f").sync()
    either.syncable("missing").sync()
    file.close()
    assert either.open("f").size == 4


def test_names_come_and_go(either: Directory) -> None:
    assert either.names() == []
    assert either.directory("sub").names() == []
    assert either.directory("sub").read_all("x") is None
    either.replace("b", b"content")
    either.replace("a", b"", durable=False)
    assert either.names() == ["a", "b"]
    assert (either.size("b"), either.size("none")) == (7, None)
    assert (either.read_all("b"), either.read_all("none")) == (b"content", None)
    either.replace("b", b"new")
    assert either.read_all("b") == b"new"
    either.rename("b", "c")
    assert (either.exists("b"), either.exists("c")) == (False, True)
    either.unlink("c")
    either.unlink("c")
    sub = either.directory("sub")
    sub.make()
    sub.open("x").close()
    sub.move("other")
    assert either.names() == ["a", "other"]
    assert sub.names() == ["x"]
    either.remove_tree("other")
    assert either.names() == ["a"]
    assert either.parent is either
    sub.sync()


def test_a_short_write_is_finished(place: DiskDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.open("f")
    real = os.pwritev

    def short(fd: int, parts: Sequence[Bytes], offset: int) -> int:
        return real(fd, [bytes(parts[0])[:2]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    assert file.append([b"abcdef", b"ghi"]) == 9
    assert bytes(file.read(0, 20)) == b"abcdefghi"


def test_a_write_that_fails_half_way_leaves_no_trace(
    place: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.open("f")
    file.append([b"good"])
    real = os.pwritev

    def short(fd: int, parts: Sequence[Bytes], offset: int) -> int:
        return real(fd, [bytes(parts[0])[:2]], offset)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", short)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        file.append([b"lost"])
    assert file.size == 4
    assert place.size("f") == 4


def test_reads_that_come_in_pieces_are_put_together(
    place: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.open("f")
    file.append([bytes(range(100))])
    real = os.preadv

    def short(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        return real(fd, [buffers[0][:30]], offset)

    monkeypatch.setattr(os, "preadv", short)
    buffer = memoryview(bytearray(200))
    assert file.read_into(0, buffer) == 100
    assert bytes(buffer[:100]) == bytes(range(100))


def test_an_open_that_fails_takes_no_place(place: DiskDirectory) -> None:
    for _ in range(10):
        with pytest.raises(FileNotFoundError):
            place.directory("none").open("f")
    assert open_descriptors(place) == 0


def test_a_symlink_is_not_followed(place: DiskDirectory, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log0" / "f").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        place.open("f")
    with pytest.raises(OSError, match="symbolic"):
        place.read_all("f")


def test_two_processes_do_not_share_a_directory(place: DiskDirectory) -> None:
    lock = DirectoryLock(place)
    with pytest.raises(CannotStartError, match="in use by another process; stop it"):
        DirectoryLock(place)
    lock.release()
    DirectoryLock(place).release()


def test_the_default_limit_leaves_half_of_the_descriptors(tmp_path: Path) -> None:
    directory = open_disk(str(tmp_path / "d"))
    directory.make()
    assert directory.open("f").fileno() > 0


def test_files_give_their_descriptors_back_where_the_process_has_too_few(tmp_path: Path) -> None:
    """Sockets and threads may need more than their share."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    disk = open_disk(str(tmp_path), open_files_max=500)
    files: list[DiskFile] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 20, limits[1]))
    try:
        files += [disk.open(f"file-{number}") for number in range(60)]
        for number, file in enumerate(files):
            file.append((b"%d" % number,))
        assert [bytes(file.read(0, 9)) for file in files] == [b"%d" % at for at in range(60)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in files:
            file.close()
