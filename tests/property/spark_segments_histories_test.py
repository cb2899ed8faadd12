"""Segment files show what a fetch shows, whatever became of their log; to readers of committed
records and to others, while its broker writes and when it is stopped.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.faults.planting import Planting
from harness.logs.two_readings import PARTITION, LogInFiles, in_files
from harness.logs.verified import write_files
from harness.suite.budgets import Histories
from tidelog.clients.settings import Isolation
from tidelog.spark import segments
from tidelog.spark.decoder import Decoder
from tidelog.spark.segments import DoubtError, bounds
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    Aborted,
    file_name,
    read_offset_entries,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def compare(folder: Path, seed: int) -> None:
    rng = Random(seed)
    made = LogInFiles(rng, compacted=rng.random() < 0.5)
    for number in range(rng.randint(1, 3)):
        made.live()
        copy = folder / f"{number}"
        made.files(copy)
        for level in Isolation:
            span = made.span(level)
            assert in_files(copy, span) == made.fetched(span)
    ends = {level: made.limit(level) for level in Isolation}
    spans = [made.span(level) for level in Isolation]
    expected = [made.fetched(span) for span in spans]
    made.stop()
    stopped = folder / "stopped"
    write_files(made.disk.root, stopped)
    for level, end in ends.items():
        start, found = bounds([stopped], PARTITION, level)
        # An undecided transaction all of which was deleted holds back a broker, not its files.
        assert (start, found) == (made.log.start, end if end > start else max(end, found))
    assert [in_files(stopped, replace(span, leader=None)) for span in spans] == expected


def history(seed: int) -> None:
    """A log that is written and read several times."""
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), seed)


def test_files_show_what_a_fetch_shows(histories: Histories) -> None:
    histories.run(history)


# -- planted faults


def _of_whole_transactions(folder: Path, base: int) -> list[Aborted]:
    """Of those that ended in a segment, what began there as well."""
    return [one for one in _ABORTED(folder, base) if one.first_offset >= base]


def _of_sealed_segments(folder: Path, base: int) -> list[Aborted]:
    """Not of the one that is being written."""
    newest = max(int(path.stem) for path in folder.glob(f"*{LOG_SUFFIX}"))
    return _ABORTED(folder, base) if base < newest else []


def _of_the_last_entry(folder: Path, segment: Any, _first: int) -> int:
    """Whether it is behind what is wanted or not."""
    path = folder / file_name(segment.base, OFFSET_INDEX_SUFFIX)
    _, positions = read_offset_entries(path.read_bytes() if path.is_file() else b"")
    return positions[-1] if positions else 0


def _one_too_many(*given: Any, first: int, end: int, **named: Any) -> Decoder:
    return Decoder(*given, first=first, end=end + (end > first), **named)


def _for_all_readers(*given: Any, **named: Any) -> Decoder:
    """What was aborted among it."""
    return Decoder(*given, **(named | {"isolation": Isolation.READ_UNCOMMITTED}))


_ABORTED = vars(segments)["_aborted"]


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("_aborted", _of_whole_transactions),
        ("_aborted", _of_sealed_segments),
        ("_position", _of_the_last_entry),
        ("Decoder", _one_too_many),
        ("Decoder", _for_all_readers),
    ],
)
def test_a_planted_fault_is_seen(name: str, plant: Callable[..., Any], planting: Planting) -> None:
    planting.is_found(
        lambda patch: patch.setattr(segments, name, plant), history, by=(AssertionError, DoubtError)
    )
