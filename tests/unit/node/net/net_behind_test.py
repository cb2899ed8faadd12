"""What a consumer that reads from the disk leaves in the page cache."""

from harness.disks.memory_disk import MemoryDisk
from tidelog.kernel.files import File
from tidelog.node.log.contracts import FileSlice
from tidelog.node.net.behind import ReadBehind

PAGE = 4096
COLD = 8 * PAGE
UPTO = 20 * COLD


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
    assert not behind.knows(piece)
    behind.begins(piece, UPTO)
    assert behind.knows(piece)
    assert ranges(behind) == [], "it is not sent yet"
    behind.sent(piece)
    assert ranges(behind) == [("a", 0, COLD)]
    assert ranges(behind) == []


def test_what_the_kernel_read_ahead_goes_too() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    behind.begins(FileSlice(file, 0, COLD), UPTO)
    behind.sent(FileSlice(file, COLD, PAGE))
    assert ranges(behind) == [("a", 0, COLD + PAGE)], "in large pieces: what came before, too"


def test_what_others_have_in_the_cache_stays() -> None:
    first, second = files("a", "b")
    behind = ReadBehind()
    behind.begins(FileSlice(first, 0, COLD), UPTO)
    behind.sent(FileSlice(first, UPTO, COLD))
    behind.sent(FileSlice(second, 0, COLD))
    assert ranges(behind) == []


def test_what_was_there_before_a_pass_began_stays() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    behind.begins(FileSlice(file, 4 * COLD, COLD), UPTO)
    behind.sent(FileSlice(file, 4 * COLD, COLD))
    behind.sent(FileSlice(file, 0, COLD))
    assert ranges(behind) == [("a", 4 * COLD, COLD)]


def test_a_second_pass_begins_anew() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    behind.begins(FileSlice(file, 0, COLD), COLD)
    far = FileSlice(file, 10 * COLD, COLD)
    assert not behind.knows(far)
    behind.begins(far, UPTO)
    behind.sent(far)
    assert ranges(behind) == [("a", 10 * COLD, COLD)]


def test_less_than_a_page_stays() -> None:
    (file,) = files("a")
    behind = ReadBehind()
    piece = FileSlice(file, 0, PAGE - 1)
    behind.begins(piece, UPTO)
    behind.sent(piece)
    assert ranges(behind) == []


def test_of_many_files_the_first_are_forgotten() -> None:
    many = files(*(f"{number:02}" for number in range(20)))
    behind = ReadBehind()
    for file in many:
        behind.begins(FileSlice(file, 0, COLD), UPTO)
    for file in many:
        behind.sent(FileSlice(file, 0, COLD))
    assert [name for name, _, _ in ranges(behind)] == [f"{number:02}" for number in range(4, 20)]
