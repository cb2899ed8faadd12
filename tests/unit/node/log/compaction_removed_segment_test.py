"""A segment that retention removes while a pass runs: the worker must not make it again."""

from pathlib import Path

import pytest

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.cleaning import Job, SegmentFacts, clean
from tidelog.node.log.segment import Segment
from tidelog.node.runtime.disk import DiskDirectory, open_disk

FACTS = SegmentFacts(base=3561, end=3600, size=4000)
JOB = Job(
    segments=(FACTS,),
    dirty_start=0,
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1 << 20,
    index_bytes_max=1 << 20,
    index_interval_bytes=4096,
    map_bytes_max=1 << 20,
    producers={},
)


@pytest.fixture
def place(tmp_path: Path) -> DiskDirectory:
    directory = open_disk(str(tmp_path / "t-0"), open_files_max=8)
    directory.make()
    return directory


def test_a_pass_over_a_removed_segment_makes_no_file(place: DiskDirectory) -> None:
    with pytest.raises(FileNotFoundError):
        list(clean(place, JOB))
    assert place.names() == []


def test_a_segment_whose_file_is_gone_is_read_without_making_it(place: DiskDirectory) -> None:
    """An empty file under a segment's name would be taken for a segment by the next start."""
    segment = Segment(place, FACTS.base, end=FACTS.end, size=FACTS.size)
    with pytest.raises(CorruptError, match="missing"):
        segment.header_at(0)
    assert place.names() == []


def test_an_existing_file_is_opened_as_it_is(place: DiskDirectory) -> None:
    place.open("a").append([b"some"])
    again = place.open_existing("a")
    assert bytes(again.read(0, 10)) == b"some"
    again.close()
