"""The leader's high watermark: the end that every in-sync replica has."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import BrokerId, Epoch, Offset
from tidelog.node.replica.leader import AdvanceHighWatermark, Leader

ONE, TWO = BrokerId(1), BrokerId(2)


def alone(end: int = 0, high_watermark: int = 0, min_in_sync: int = 1) -> Leader:
    return Leader(
        me=ONE,
        epoch=Epoch(3),
        in_sync={ONE: Offset(end)},
        high_watermark=Offset(high_watermark),
        min_in_sync=min_in_sync,
    )


def test_alone_in_sync_a_record_is_safe_as_soon_as_it_is_appended() -> None:
    leader = alone()
    assert leader.appended(Offset(10)) == AdvanceHighWatermark(Offset(10))
    assert leader.high_watermark == 10


def test_a_restarted_leader_alone_in_sync_shows_all_it_holds() -> None:
    leader = alone(end=10, high_watermark=4)
    assert leader.started() == AdvanceHighWatermark(Offset(10))


def test_with_a_follower_in_sync_nothing_is_safe_by_the_leader_s_append_alone() -> None:
    leader = Leader(
        me=ONE,
        epoch=Epoch(0),
        in_sync={ONE: Offset(5), TWO: Offset(5)},
        high_watermark=Offset(5),
        min_in_sync=1,
    )
    assert leader.appended(Offset(9)) is None
    assert leader.high_watermark == 5


def test_below_the_smallest_in_sync_set_the_high_watermark_is_frozen() -> None:
    leader = alone(min_in_sync=2)
    assert not leader.enough_in_sync()
    assert leader.appended(Offset(10)) is None
    assert leader.high_watermark == 0


def test_a_high_watermark_beyond_the_log_is_cut_to_it() -> None:
    assert alone(end=3, high_watermark=8).high_watermark == 3


@given(st.lists(st.integers(0, 50), max_size=30))
def test_the_high_watermark_never_goes_back_and_never_passes_the_end(steps: list[int]) -> None:
    leader = alone()
    end = 0
    for step in steps:
        before = leader.high_watermark
        end += step
        leader.appended(Offset(end))
        assert before <= leader.high_watermark <= end
