"""What is left of files, held against what a ledger called stable. No disk loses anything here."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.node.ipc.ledger_layout import FileRow, NameRow, Place
from tidelog.tools.chaos.kernel_loss import Before
from tidelog.tools.chaos.power_loss import Loss
from tidelog.tools.chaos.survey import Recorded, survey

PAGE = 4096
NOWHERE = Place(0)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A file that is stable, one whose first page is, and one that nobody has synced yet, in a
    folder that nobody has synced."""
    (tmp_path / "kept").write_bytes(b"k" * 100)
    (tmp_path / "half").write_bytes(b"h" * (3 * PAGE + 1))
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").write_bytes(b"n" * 10)
    (tmp_path / ".lock").touch()
    return tmp_path


def before(top: Path) -> Before:
    half, new, file = ((top / name).stat().st_ino for name in ("half", "new", "new/file"))
    said = Recorded(
        files={half: FileRow(NOWHERE, half, PAGE, 0, 0), file: FileRow(NOWHERE, file, 0, 0, 0)},
        names={
            top.stat().st_ino: [NameRow(NOWHERE, top.stat().st_ino, "new", 0, 1)],
            new: [NameRow(NOWHERE, new, "file", 0, 1)],
        },
    )
    return Before.of(survey(said, [str(top)]))


def rows(top: Path, found: list[Loss]) -> list[tuple[str, str, int, int, int, int]]:
    return [
        (row.path.removeprefix(f"{top}/"), row.what, row.size, row.stable, row.left, row.torn_pages)
        for row in found
    ]


def test_what_nobody_synced_may_go(top: Path) -> None:
    seen = before(top)
    (top / "new/file").unlink()
    (top / "new").rmdir()
    (top / ".lock").unlink()
    with (top / "half").open("r+b") as half:
        half.truncate(2 * PAGE + 5)
        half.seek(PAGE)
        half.write(b"\0")
    lost, broken = seen.held_against_now()
    assert broken == []
    assert rows(top, lost) == [
        ("half", "bytes", 3 * PAGE + 1, PAGE, 2 * PAGE + 5, 1),
        ("new", "gone", 0, 0, 0, 0),
        ("new/file", "gone", 10, 0, 0, 0),
    ]


def test_where_nothing_is_lost_nothing_is_told(top: Path) -> None:
    assert before(top).held_against_now() == ([], [])


def _cut(top: Path) -> None:
    os.truncate(top / "half", PAGE - 1)


def _change(top: Path) -> None:
    with (top / "half").open("r+b") as half:
        half.write(b"x")


def _remove(top: Path) -> None:
    (top / "kept").unlink()


def _replace(top: Path) -> None:
    """The same bytes; but a directory had forgotten that it names this file."""
    (top / "other").write_bytes((top / "kept").read_bytes())
    (top / "other").replace(top / "kept")


@pytest.mark.parametrize(
    ("fault", "name"), [(_cut, "half"), (_change, "half"), (_remove, "kept"), (_replace, "kept")]
)
def test_what_was_stable_must_be_there(top: Path, fault: Callable[[Path], None], name: str) -> None:
    seen = before(top)
    fault(top)
    lost, broken = seen.held_against_now()
    assert broken == [str(top / name)]
    assert [Path(row.path).name for row in lost] == [name]


def test_what_was_removed_may_come_back_as_it_was(top: Path) -> None:
    seen = before(top)
    (top / "removed").write_bytes(b"r" * 7)
    lost, broken = seen.held_against_now()
    assert (rows(top, lost), broken) == ([("removed", "back", 0, 0, 7, 0)], [])
