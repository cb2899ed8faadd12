"""Up to which offset a segment is stable, from its headers and its index."""

import os
from pathlib import Path

import pytest

from tidelog.node.log.index import OffsetIndex
from tidelog.node.runtime.disk import open_disk
from tidelog.tools.durable_end import HEADERS_MAX, Allowance, DurableEnd, durable_end
from tidelog.wire.records import Record, build_batch

NAME = "00000000000000000100.log"
INDEX = "00000000000000000100.index"
BATCHES = [
    bytes(build_batch([Record(offset, offset * 10, None, b"value", ()) for offset in offsets]))
    for offsets in ((100, 101), (102,), (105, 106, 107))
]
"""With a gap, as compaction leaves it."""
ENDS = [sum(map(len, BATCHES[: number + 1])) for number in range(len(BATCHES))]
WHOLE = ENDS[-1]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / NAME).write_bytes(b"".join(BATCHES))
    return str(tmp_path)


def end(folder: str, stable: int, headers: int = HEADERS_MAX) -> DurableEnd:
    return durable_end(folder, NAME, stable, Allowance(headers))


def test_a_batch_counts_once_all_of_it_is_stable(folder: str) -> None:
    assert end(folder, 0) == DurableEnd(100, 1_000)
    assert end(folder, ENDS[0] - 1) == DurableEnd(100, 1_000)
    assert end(folder, ENDS[0]) == DurableEnd(102, 1_020)
    assert end(folder, ENDS[1]) == DurableEnd(105, 1_050)
    assert end(folder, WHOLE) == DurableEnd(108, None)


def test_it_begins_at_the_last_indexed_batch(folder: str) -> None:
    assert end(folder, ENDS[1], 2) == DurableEnd(None, None), "too much would have to be read"
    index = OffsetIndex(open_disk(folder), INDEX)
    index.append(2, ENDS[0])
    index.write()
    assert end(folder, ENDS[1], 2) == DurableEnd(105, 1_050)
    assert end(folder, ENDS[0] - 1) == DurableEnd(100, 1_000), "that batch is behind the stable end"


def test_segments_of_one_look_share_what_may_be_read(folder: str) -> None:
    allowance = Allowance(4)
    assert durable_end(folder, NAME, WHOLE, allowance) == DurableEnd(108, None)
    assert durable_end(folder, NAME, WHOLE, allowance) == DurableEnd(None, None)


def test_an_index_that_is_wrong_is_left_alone(folder: str) -> None:
    index = OffsetIndex(open_disk(folder), INDEX)
    index.append(2, ENDS[0] + 1)
    index.write()
    assert end(folder, WHOLE) == DurableEnd(108, None)


def test_bytes_that_are_no_batch_end_it(folder: str) -> None:
    with Path(folder, NAME).open("ab") as file:
        file.write(bytes(200))
    assert end(folder, WHOLE + 200) == DurableEnd(108, None)


def test_of_a_log_that_stamps_batches_the_stamp_counts(folder: str) -> None:
    batch = bytearray(BATCHES[0])
    batch[22] |= 8
    Path(folder, NAME).write_bytes(batch)
    assert end(folder, 0) == DurableEnd(100, 1_010)


def test_an_empty_segment_ends_where_it_begins(folder: str) -> None:
    os.truncate(f"{folder}/{NAME}", 0)
    assert end(folder, 0) == DurableEnd(100, None)
