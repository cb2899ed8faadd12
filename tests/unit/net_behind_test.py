"""What a consumer that reads from the disk leaves in the page cache."""

from harness.memory_disk import MemoryDisk
from tidelog.kernel.files import File
from tidelog.node.log.contracts import FileSlice
from tidelog.node.net.behind import ReadBehind

PAGE = 4096
COLD = 8 * PAGE
AHEAD = 4 * PAGE


def files(*names: str) -> list[File]:
    directory = MemoryDisk().directory("d")
    directory.make()
    return [directory.open(name) for name in names]


def ranges(behind: ReadBehind) -> list[tuple[str, int, int]]:
    return [(one.piece.file.name, one.start, one.size) for one in behind.take()]


def test_what_came_from_the_disk_goes_once_in_whole_pages() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    piece = FileSlice(file, 100, COLD)
    behind.came_from_disk(piece, AHEAD)
    assert ranges(behind) == [], "it is not sent yet"
    behind.sent(piece)
    assert ranges(behind) == [("a", 0, COLD)]
    assert ranges(behind) == []


def test_what_the_kernel_read_ahead_goes_too() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    behind.came_from_disk(FileSlice(file, 0, COLD), AHEAD)
    behind.sent(FileSlice(file, COLD, PAGE))
    assert ranges(behind) == [("a", COLD, PAGE)]


def test_what_others_have_in_the_cache_stays() -> None:
    first, second = files("a", "b")
    behind = ReadBehind()
    behind.came_from_disk(FileSlice(first, 0, COLD), AHEAD)
    behind.sent(FileSlice(first, COLD + AHEAD + 1, COLD))
    behind.sent(FileSlice(second, 0, COLD))
    assert ranges(behind) == []


def test_less_than_a_page_stays() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    piece = FileSlice(file, 0, PAGE - 1)
    behind.came_from_disk(piece, AHEAD)
    behind.sent(piece)
    assert ranges(behind) == []


def test_of_many_files_the_first_are_forgotten() -> None:
    many = files(*(f"{number:02}" for number in range(20)))
    behind = ReadBehind()
    for file in many:
        behind.came_from_disk(FileSlice(file, 0, COLD), AHEAD)
    for file in many:
        behind.sent(FileSlice(file, 0, COLD))
    assert [name for name, _, _ in ranges(behind)] == [f"{number:02}" for number in range(4, 20)]
