"""Which bytes of logs leave the page cache, and which are given to the disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.node.log.cache_keep import (
    PAGE_BYTES,
    Drop,
    Extent,
    Pages,
    Push,
    Writeback,
    drops,
    held,
    plan,
    reach,
)

SEGMENT = 10 * PAGE_BYTES


def full(*sizes: int) -> list[Pages]:
    """Segments that are in memory as a whole."""
    return [Pages(f"{at}.log", size, size) for at, size in enumerate(sizes)]


def left(segments: list[Pages], gone: list[Drop]) -> int:
    """Bytes that stay, where the segments were in memory as a whole."""
    upto = {drop.name: drop.upto for drop in gone}
    return sum(one.size - upto.get(one.name, 0) for one in segments)


def test_what_is_within_the_bound_stays() -> None:
    assert reach([100, 200, 300], 600) is None
    assert plan({"a": full(SEGMENT, SEGMENT)}, 2 * SEGMENT) == {}


def test_logs_with_less_than_their_share_leave_it_to_the_others() -> None:
    assert reach([100, 5_000, 6_000], 8_000) == (7_000 - 100) // 2


def test_nothing_stays_where_the_bound_is_nothing() -> None:
    assert reach([1, 2], 0) == 0
    assert drops(full(SEGMENT, SEGMENT), 0) == [Drop("0.log", SEGMENT), Drop("1.log", SEGMENT)]


def test_the_oldest_bytes_go_and_the_tail_stays() -> None:
    segments = full(SEGMENT, SEGMENT, SEGMENT)
    assert drops(segments, SEGMENT + 4 * PAGE_BYTES) == [
        Drop("0.log", SEGMENT),
        Drop("1.log", 6 * PAGE_BYTES),
    ]


def test_the_page_that_is_written_to_stays() -> None:
    (drop,) = drops(full(SEGMENT + 100), 0)
    assert drop.upto == SEGMENT
    assert drops(full(100), 0) == []


def test_a_sealed_segment_goes_to_its_last_byte() -> None:
    first, _ = drops(full(SEGMENT + 100, SEGMENT), 0)
    assert first.upto == SEGMENT + 100


def test_what_is_not_in_memory_is_not_dropped() -> None:
    segments = [Pages("0.log", SEGMENT, 0), Pages("1.log", SEGMENT, SEGMENT)]
    assert [drop.name for drop in drops(segments, 0)] == ["1.log"]


@given(
    logs=st.lists(
        st.lists(st.integers(0, 50).map(lambda one: one * 1_000), max_size=5), max_size=6
    ),
    bound=st.integers(0, 400_000),
)
def test_the_bound_holds_but_for_a_page_of_each_log(logs: list[list[int]], bound: int) -> None:
    made = {str(at): full(*sizes) for at, sizes in enumerate(logs)}
    gone = plan(made, bound)
    stays = sum(left(segments, gone.get(name, [])) for name, segments in made.items())
    assert stays <= max(bound, 0) + len(made) * PAGE_BYTES
    if sum(held(segments) for segments in made.values()) <= bound:
        assert not gone


def extents(*sizes: int) -> list[Extent]:
    return [Extent(at * 100, f"{at * 100}.log", size) for at, size in enumerate(sizes)]


def test_each_step_is_given_to_the_disk_once_in_whole_pages() -> None:
    one = Writeback()
    step = 2 * PAGE_BYTES
    assert one.due(extents(step - 1), step) == []
    assert one.due(extents(step + 5), step) == [Push("0.log", 0, step)]
    assert one.due(extents(step + 5), step) == []
    assert one.due(extents(3 * step), step) == [Push("0.log", step, 2 * step)]


def test_the_rest_of_a_sealed_segment_goes_at_once() -> None:
    one = Writeback()
    step = 2 * PAGE_BYTES
    one.due(extents(step + 5), step)
    sealed = one.due(extents(step + 50, 10), step)
    assert sealed == [Push("0.log", step, 50)]
    assert one.due(extents(step + 50, 10), step) == []


def test_segments_that_came_and_were_sealed_between_two_looks_go_too() -> None:
    one = Writeback()
    one.due(extents(PAGE_BYTES), PAGE_BYTES)
    found = one.due(extents(PAGE_BYTES, 70, PAGE_BYTES), PAGE_BYTES)
    assert found == [Push("100.log", 0, 70), Push("200.log", 0, PAGE_BYTES)]


def test_what_was_sealed_before_it_was_first_looked_at_is_left_to_the_kernel() -> None:
    assert Writeback().due(extents(SEGMENT, PAGE_BYTES), PAGE_BYTES) == [
        Push("100.log", 0, PAGE_BYTES)
    ]


def test_behind_a_cut_all_is_new() -> None:
    one = Writeback()
    one.due(extents(SEGMENT), PAGE_BYTES)
    assert one.due(extents(PAGE_BYTES), PAGE_BYTES) == []
    assert one.due(extents(3 * PAGE_BYTES), PAGE_BYTES) == [
        Push("0.log", PAGE_BYTES, 2 * PAGE_BYTES)
    ]


@pytest.mark.parametrize("bound", [0, 1, 7])
def test_an_eighth_more_goes_so_that_not_each_append_brings_a_drop(bound: int) -> None:
    size = bound * 8 * PAGE_BYTES
    kept = reach([size + 1], size)
    assert kept == 7 * bound * PAGE_BYTES
