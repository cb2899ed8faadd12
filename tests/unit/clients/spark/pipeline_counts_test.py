"""What pipelines remember and conclude about their counts, without Spark."""

import gc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.kernel.ids import Partition
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines import acks, verify
from tidelog.spark.pipelines.acks import AckLog
from tidelog.spark.pipelines.contents import Difference
from tidelog.spark.pipelines.failures import PipelineError, UsageError
from tidelog.spark.pipelines.frames import Driven, Span
from tidelog.spark.pipelines.kept import Kept, check_local
from tidelog.spark.pipelines.mirror_check import Found
from tidelog.spark.pipelines.mirror_memory import (
    Counted,
    Memory,
    check_name,
    derived_name,
    old_memory,
)
from tidelog.spark.pipelines.readers import Found as Read

T0, T1 = ("t", Partition(0)), ("t", Partition(1))


def at(*offsets: int) -> Positions:
    return dict(zip((T0, T1), offsets, strict=False))


def write(log: AckLog) -> None:
    log.add(np.arange(3), T0, 0, "acked")


def test_a_task_s_history_has_its_name_only_once_it_is_closed(tmp_path: Path) -> None:
    folder = str(tmp_path / "acks")
    acks.begin(folder)
    broken_off, closed = AckLog(folder, 0), AckLog(folder, 1)
    write(broken_off)
    write(closed)
    closed.close()
    del broken_off
    gc.collect()
    assert [one.name for one in Path(folder).glob("part-*")] == ["part-00001.parquet"]


def test_a_history_counts_only_once_its_load_has_ended(tmp_path: Path) -> None:
    folder = str(tmp_path / "acks")
    acks.begin(folder)
    AckLog(folder, 0).close()
    with pytest.raises(PipelineError, match="did not end, so that the fate of some of its rows"):
        verify.history(cast("Any", None), folder)
    with pytest.raises(PipelineError, match="a part of one, already: choose another folder"):
        acks.begin(folder)
    acks.complete(folder)
    acks.check_complete(folder)
    acks.check_complete(str(tmp_path / "other.jsonl"))


def test_two_mirrors_have_one_name_only_if_they_copy_the_same() -> None:
    name = derived_name("c1", ["a", "b"], "p-")
    assert name.startswith("mirror-c1-")
    assert name == derived_name("c1", ["b", "a"], "p-")
    others = [
        ("c2", ["a", "b"], "p-"),
        ("c1", ["a"], "p-"),
        ("c1", ["a", "b"], ""),
        ("c1", ["p-a"], ""),
    ]
    assert len({name, *(derived_name(*one) for one in others)}) == 5


def test_a_mirror_s_memory_survives_its_file(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "cp" / "memory.json"))
    assert kept.read() is None
    for memory in (
        Memory("m", "t", Counted(at(1, 2), at(3, 4))),
        Memory("m", "t", Counted({}, at(3))),
        old_memory(None, ["t", "a"]),
    ):
        kept.write(memory.document())
        assert Memory.of(kept.read() or {}) == memory
    assert (old_memory(None, ["t"]).name, old_memory("n", ["t"]).name) == ("mirror", "n")


def test_a_checkpoint_keeps_the_name_of_its_mirror() -> None:
    memory = Memory("m", "t")
    check_name(memory, None, "cp")
    check_name(memory, "m", "cp")
    with pytest.raises(UsageError, match="the checkpoint cp is that of mirror m; leave --name out"):
        check_name(memory, "n", "cp")


def test_a_checkpoint_that_this_machine_cannot_write_is_refused() -> None:
    check_local("folder")
    check_local("file:///folder")
    with pytest.raises(UsageError, match="--checkpoint=s3a://b/cp: must be a folder that this"):
        check_local("s3a://b/cp")


@pytest.mark.parametrize(
    ("rows", "found", "differences", "lost", "wrong"),
    [
        (9, 9, [], 0, False),
        (9, None, [], 0, False),
        (9, 12, [Difference("t-0", 0, 0, 0, 3)], 0, False),
        (9, 9, [Difference("t-0", 1, 0, 0, 1)], 1, True),
        (9, 8, [Difference("t-0", 1, 0, 0, 0)], 1, True),
        (9, 8, [Difference("t-0", 0, 0, 1, 0)], 0, False),
        (9, 6, [Difference("t-0", 0, 0, 1, 0)], 2, True),  # the source has lost them meanwhile
        (9, 10, [Difference("t-0", 0, 1, 0, 0)], 0, True),
    ],
)
def test_a_copy_is_wrong_if_it_lacks_records_or_has_one_twice(
    rows: int, found: int | None, differences: list[Difference], lost: int, *, wrong: bool
) -> None:
    told = Found(rows, found, None, differences)
    assert (told.lost, told.is_wrong) == (lost, wrong)


def test_rows_that_retention_took_after_a_load_are_not_lost() -> None:
    assert Read(10, 10).lost == 0
    assert Read(10, 7).lost == 3
    assert Read(10, 7, removed=3).lost == 0
    assert Read(10, 7, is_compacted=True).lost == 0
    assert "--acks 0 brokers confirm nothing" in Read(10, 7).sentence("t", acks="0")


class Query:
    """A stream that has ended, and what it said of its micro-batches."""

    def __init__(self, *batches: tuple[int, int, str | None, str | None]) -> None:
        self.recentProgress = [
            {
                "batchId": batch,
                "numInputRows": rows,
                "sources": [{"startOffset": first, "endOffset": stop}],
            }
            for batch, rows, first, stop in batches
        ]

    def awaitTermination(self, _seconds: int) -> bool:  # noqa: N802 -- Spark's name
        return True


def driven(*batches: tuple[int, int, str | None, str | None]) -> Driven:
    return Driven(cast("StreamingQuery", Query(*batches)), "test").to_the_end()


def test_a_run_has_not_read_what_lies_before_it_or_was_found_done() -> None:
    first = (0, 5, "null", '{"t":{"0":5}}')
    second = (1, 5, '{"t":{"0":5}}', '{"t":{"0":10}}')
    assert driven(first, second).unread({}) == []
    assert driven(first).begin == {}
    assert driven(second).begin == at(5)
    assert driven(second).unread(at(2)) == [Span(at(2), at(5))]
    skipped = (2, 0, '{"t":{"0":10}}', '{"t":{"0":15}}')
    assert driven(second, skipped).unread(at(5))[1:] == [Span(at(10), at(15))]
    assert driven(second, skipped).ends == at(15)
