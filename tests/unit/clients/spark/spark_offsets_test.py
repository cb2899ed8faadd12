"""Offsets of many partitions: ranges between them, tasks, and shares of a micro-batch."""

from hypothesis import given
from hypothesis import strategies as st

from harness.machines.toy_topics import at
from tidelog.kernel.ids import Offset, Partition
from tidelog.spark.loss import loss_of, vanished
from tidelog.spark.offsets import (
    OffsetRange,
    from_json,
    gathered,
    limited,
    ranges_between,
    split,
    to_json,
)


def span(number: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", Partition(number), Offset(start), Offset(end))


def edges(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in ranges]


def test_small_ranges_are_one_tasks_until_it_has_enough() -> None:
    ranges = [span(0, 0, 3), span(1, 5, 9), span(2, 0, 50), span(3, 0, 1), span(4, 0, 2)]
    tasks = gathered(ranges, size_min=7)
    assert [[one.partition for one in task] for task in tasks] == [[0, 1], [2], [3, 4]]
    assert [one for task in tasks for one in task] == ranges, "in order, and none is lost"


def test_without_a_least_size_each_range_is_a_task() -> None:
    ranges = [span(0, 0, 1), span(1, 0, 9)]
    assert gathered(ranges, size_min=1) == [(ranges[0],), (ranges[1],)]
    assert gathered([], size_min=1) == []


def test_equal_offsets_are_equal_texts_in_whatever_order_they_were_found() -> None:
    one, other = {at(10): 1, at(9): 2}, {at(9): 2, at(10): 1}
    assert str(to_json(one)) == str(to_json(other)) == "{'t': {'9': 2, '10': 1}}"
    assert from_json(to_json(one)) == one


def test_what_did_not_grow_is_no_range_and_what_is_new_begins_at_its_first_offset() -> None:
    found = ranges_between({at(0): 5, at(1): 7}, {at(0): 5, at(1): 9, at(2): 3})
    assert edges(found) == [(1, 7, 9), (2, 0, 3)]


def test_a_log_that_shrank_is_no_range() -> None:
    assert ranges_between({at(0): 5}, {at(0): 3}) == []


def test_large_ranges_are_cut_and_small_ones_stay() -> None:
    ranges = [span(0, 0, 90), span(1, 10, 20)]
    assert edges(split(ranges, parts_min=4, size_max=None)) == [
        *((0, 0, 22), (0, 22, 45), (0, 45, 67), (0, 67, 90)),
        (1, 10, 20),
    ]
    assert split(ranges, parts_min=2, size_max=None) == ranges
    assert edges(split(ranges, parts_min=None, size_max=45)) == [
        (0, 0, 45),
        (0, 45, 90),
        (1, 10, 20),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
)
def test_tasks_cover_the_ranges_without_gap_or_overlap(
    sizes: list[tuple[int, int]], parts_min: int | None, size_max: int | None
) -> None:
    ranges = [span(n, start, start + size) for n, (start, size) in enumerate(sizes)]
    cut = split(ranges, parts_min=parts_min, size_max=size_max)
    offsets = [(one.partition, offset) for one in cut for offset in range(one.start, one.end)]
    assert offsets == [(one.partition, o) for one in ranges for o in range(one.start, one.end)]
    assert all(0 < one.size <= (size_max or one.size) for one in cut)


def test_a_micro_batch_is_shared_out_by_what_is_left() -> None:
    start, latest = {at(0): 0, at(1): 100}, {at(0): 300, at(1): 200}
    assert limited(start, latest, {}, 40) == {at(0): 30, at(1): 110}
    assert limited(start, latest, {}, 400) == latest


def test_what_is_new_counts_from_its_earliest_offset() -> None:
    assert limited({}, {at(0): 1_010}, {at(0): 1_000}, 5) == {at(0): 1_005}


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6),
    st.integers(1, 200),
)
def test_a_share_is_never_more_than_there_is_and_some_of_it_is_always_taken(
    logs: list[tuple[int, int]], most: int
) -> None:
    start = {at(n): begin for n, (begin, _) in enumerate(logs)}
    latest = {at(n): begin + left for n, (begin, left) in enumerate(logs)}
    ends = limited(start, latest, {}, most)
    taken = [ends[one] - start[one] for one in start]
    assert all(0 <= took <= left for took, (_, left) in zip(taken, logs, strict=True))
    total = sum(left for _, left in logs)
    assert min(total, most) <= sum(taken) <= most + len(logs) or sum(taken) == total


def test_a_loss_names_partition_wanted_earliest_and_cause() -> None:
    gone = loss_of(at(3), 5, 8, 20)
    assert str(gone) == (
        "t-3: wanted offset 5, earliest there is 8: retention or DeleteRecords has removed 3 "
        "offsets that were not read"
    )
    assert "the log ends at 20: the topic was deleted" in str(loss_of(at(3), 21, 8, 20))
    assert loss_of(at(3), 8, 8, 20) is None
    assert loss_of(at(3), 20, 8, 20) is None
    assert "t-3: wanted offset 5: the partition is not there any more" in str(vanished(at(3), 5))
