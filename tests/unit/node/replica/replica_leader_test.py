"""The leader of one partition: what is safe, and who should be in sync."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import BrokerId, Epoch, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.node.replica.leader import AdvanceHighWatermark, Leader
from tidelog.wire.metadata_records import PartitionView

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MAX = ms(10_000)
START = Instant(ms(100_000))


def at(milliseconds: int) -> Instant:
    return Instant(START + ms(milliseconds))


def view(
    replicas: tuple[BrokerId, ...] = (ONE, TWO, THREE),
    isr: tuple[BrokerId, ...] = (ONE, TWO, THREE),
    partition_epoch: int = 0,
) -> PartitionView:
    return PartitionView(
        replicas=replicas,
        isr=isr,
        leader=ONE,
        leader_epoch=Epoch(3),
        partition_epoch=Epoch(partition_epoch),
    )


def leader_of(
    shown: PartitionView, *, end: int = 0, high_watermark: int = 0, min_in_sync: int = 1
) -> Leader:
    return Leader(
        me=ONE,
        view=shown,
        end=Offset(end),
        high_watermark=Offset(high_watermark),
        min_in_sync=min_in_sync,
        now=START,
    )


def alone(end: int = 0, high_watermark: int = 0, min_in_sync: int = 1) -> Leader:
    shown = view((ONE,), (ONE,))
    return leader_of(shown, end=end, high_watermark=high_watermark, min_in_sync=min_in_sync)


def vouch(leader: Leader, broker: BrokerId, end: int, milliseconds: int = 0) -> object:
    return leader.vouched(at(milliseconds), broker, Offset(end), Offset(0))


def silent(_broker: BrokerId) -> Instant:
    return Instant(0)


def propose(leader: Leader, milliseconds: int, *joining: BrokerId) -> object:
    return leader.propose(at(milliseconds), LAG_MAX, joining=joining, heard=silent)


def test_alone_in_sync_a_record_is_safe_as_soon_as_it_is_appended() -> None:
    leader = alone()
    assert leader.appended(START, Offset(10)) == AdvanceHighWatermark(Offset(10))
    assert leader.high_watermark == 10


def test_a_restarted_leader_alone_in_sync_shows_all_it_holds() -> None:
    leader = alone(end=10, high_watermark=4)
    assert leader.recount() == AdvanceHighWatermark(Offset(10))


def test_with_a_follower_in_sync_nothing_is_safe_by_the_leader_s_append_alone() -> None:
    leader = leader_of(view((ONE, TWO), (ONE, TWO)), end=5, high_watermark=5)
    assert leader.appended(START, Offset(9)) is None
    assert leader.high_watermark == 5
    assert vouch(leader, TWO, 7) == AdvanceHighWatermark(Offset(7))
    assert vouch(leader, TWO, 9) == AdvanceHighWatermark(Offset(9))


def test_the_slowest_in_sync_replica_decides_and_one_that_is_out_does_not() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5)
    assert vouch(leader, THREE, 1) is None
    assert vouch(leader, TWO, 4) == AdvanceHighWatermark(Offset(4))


def test_after_an_election_nothing_is_known_of_the_others() -> None:
    leader = leader_of(view(), end=5, high_watermark=2)
    assert leader.recount() is None
    assert vouch(leader, TWO, 5) is None
    assert leader.high_watermark == 2
    assert vouch(leader, THREE, 5) == AdvanceHighWatermark(Offset(5))


def test_below_the_smallest_in_sync_set_the_high_watermark_is_frozen() -> None:
    leader = leader_of(view(isr=(ONE,)), min_in_sync=2)
    assert not leader.enough_in_sync()
    assert leader.appended(START, Offset(10)) is None
    assert leader.high_watermark == 0


def test_no_more_are_asked_for_in_sync_than_there_are_replicas() -> None:
    leader = alone(min_in_sync=2)
    assert leader.enough_in_sync()
    assert leader.appended(START, Offset(10)) == AdvanceHighWatermark(Offset(10))


def test_an_added_replica_counts_from_the_moment_it_is_proposed() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=5)
    vouch(leader, TWO, 5)
    vouch(leader, THREE, 5)
    assert leader.may_join(THREE)
    assert propose(leader, 0, THREE) == (ONE, TWO, THREE)
    leader.appended(START, Offset(6))
    assert vouch(leader, TWO, 6) is None
    assert vouch(leader, THREE, 6) == AdvanceHighWatermark(Offset(6))


def test_a_refused_addition_does_not_hold_the_high_watermark_up() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=5)
    vouch(leader, THREE, 5)
    propose(leader, 0, THREE)
    leader.appended(START, Offset(6))
    vouch(leader, TWO, 6)
    assert leader.refused() == AdvanceHighWatermark(Offset(6))


def test_an_addition_of_which_nothing_is_known_counts_on() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=5)
    vouch(leader, THREE, 5)
    propose(leader, 0, THREE)
    leader.unanswered()
    leader.appended(START, Offset(6))
    assert vouch(leader, TWO, 6) is None


def in_doubt() -> Leader:
    """TWO is in sync; nobody knows whether the addition of THREE was taken."""
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=5)
    vouch(leader, TWO, 5)
    vouch(leader, THREE, 5)
    propose(leader, 0, THREE)
    leader.unanswered()
    return leader


def test_a_leader_in_doubt_proposes_even_the_in_sync_set_there_is() -> None:
    leader = in_doubt()
    assert propose(leader, 0) == (ONE, TWO)
    assert propose(leader, 0) is None
    leader.appended(START, Offset(6))
    vouch(leader, TWO, 6)
    assert leader.high_watermark == 5
    confirmed = leader.confirmed(view(isr=(ONE, TWO), partition_epoch=1), 1)
    assert confirmed == AdvanceHighWatermark(Offset(6))
    assert propose(leader, 0) is None


def test_the_refusal_of_a_later_proposal_says_nothing_of_an_unanswered_one() -> None:
    leader = in_doubt()
    propose(leader, 0)
    leader.appended(START, Offset(6))
    vouch(leader, TWO, 6)
    assert leader.refused() is None
    assert leader.in_doubt
    assert propose(leader, 0) == (ONE, TWO)


def test_a_removed_member_counts_until_the_record_says_so() -> None:
    leader = leader_of(view(), end=5, high_watermark=5)
    leader.appended(at(0), Offset(6))
    vouch(leader, TWO, 6, 10_500)
    assert propose(leader, 10_500) == (ONE, TWO)
    assert leader.high_watermark == 5
    confirmed = leader.confirmed(view(isr=(ONE, TWO), partition_epoch=1), 1)
    assert confirmed == AdvanceHighWatermark(Offset(6))


def test_an_in_sync_set_and_a_minimum_that_come_together_count_together() -> None:
    """Taken one after the other, either could be counted under the other's old value."""
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=4)
    vouch(leader, TWO, 4)
    assert leader.confirmed(view(isr=(ONE,), partition_epoch=1), 2) is None
    assert leader.confirmed(view(isr=(ONE,), partition_epoch=2), 1) == AdvanceHighWatermark(
        Offset(5)
    )


def test_one_proposal_is_under_way_at_a_time() -> None:
    leader = leader_of(view(isr=(ONE,)), end=5, high_watermark=5)
    vouch(leader, TWO, 5)
    vouch(leader, THREE, 5)
    assert propose(leader, 0, TWO) == (ONE, TWO)
    assert propose(leader, 0, THREE) is None
    leader.confirmed(view(isr=(ONE, TWO), partition_epoch=1), 1)
    assert propose(leader, 0, THREE) == (ONE, TWO, THREE)


def test_who_has_all_of_the_high_watermark_but_not_of_the_epoch_s_start_may_not_join() -> None:
    leader = leader_of(view(isr=(ONE,)), end=5, high_watermark=1, min_in_sync=2)
    vouch(leader, THREE, 1)
    assert not leader.may_join(THREE)
    vouch(leader, THREE, 5)
    assert leader.may_join(THREE)


def test_a_follower_that_lacks_one_committed_record_may_not_join() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5, high_watermark=5)
    vouch(leader, THREE, 4)
    assert not leader.may_join(THREE)
    vouch(leader, THREE, 5)
    assert leader.may_join(THREE)


def test_a_proposed_replica_is_none_of_those_that_must_be_in_sync() -> None:
    """Before its record is written, another one may be elected: the eligible one, without it."""
    leader = leader_of(view(isr=(ONE,)), end=5, high_watermark=5, min_in_sync=2)
    vouch(leader, TWO, 5)
    assert propose(leader, 0, TWO) == (ONE, TWO)
    assert not leader.enough_in_sync()
    leader.appended(START, Offset(6))
    assert vouch(leader, TWO, 6) is None
    confirmed = leader.confirmed(view(isr=(ONE, TWO), partition_epoch=1), 2)
    assert confirmed == AdvanceHighWatermark(Offset(6))


def test_a_slow_member_that_had_all_of_a_moment_ago_stays() -> None:
    leader = leader_of(view((ONE, TWO), (ONE, TWO)))
    for second in range(60):
        leader.appended(at(second * 1000), Offset(second * 100 + 100))
        vouch(leader, TWO, second * 100, second * 1000)
        assert propose(leader, second * 1000) is None


def test_a_member_that_falls_further_and_further_behind_goes() -> None:
    leader = leader_of(view((ONE, TWO), (ONE, TWO)))
    for second in range(60):
        leader.appended(at(second * 1000), Offset(second * 100 + 100))
        vouch(leader, TWO, second * 10, second * 1000)
        if propose(leader, second * 1000) == (ONE,):
            break
    assert 10 < second <= 20


def test_a_member_that_has_all_stays_as_long_as_it_is_heard_of() -> None:
    leader = leader_of(view((ONE, TWO), (ONE, TWO)))
    vouch(leader, TWO, 0)
    heard = {TWO: at(55_000)}
    assert not leader.overdue(at(60_000), LAG_MAX, heard.__getitem__)
    assert leader.overdue(at(65_001), LAG_MAX, heard.__getitem__)


def test_a_high_watermark_beyond_the_log_is_cut_to_it() -> None:
    assert alone(end=3, high_watermark=8).high_watermark == 3


@given(st.lists(st.integers(0, 50), max_size=30))
def test_the_high_watermark_never_goes_back_and_never_passes_the_end(steps: list[int]) -> None:
    leader = alone()
    end = 0
    for step in steps:
        before = leader.high_watermark
        end += step
        leader.appended(START, Offset(end))
        assert before <= leader.high_watermark <= end


def test_a_minimum_that_the_topic_asks_for_counts_at_once_and_is_news_once() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), min_in_sync=1)
    assert leader.enough_in_sync()
    assert leader.asks_min_in_sync(3)
    assert not leader.enough_in_sync()
    assert not leader.asks_min_in_sync(3)
    assert leader.asks_min_in_sync(2)
    assert leader.enough_in_sync()
    assert leader.asks_min_in_sync(3), "it was taken back meanwhile"


def test_a_proposal_is_under_way_until_a_later_partition_epoch_comes() -> None:
    """A record that only changes what the topic asks for decides on no proposal."""
    leader = leader_of(view(isr=(ONE, TWO), partition_epoch=4), end=5)
    vouch(leader, TWO, 5)
    vouch(leader, THREE, 5)
    assert propose(leader, 0, THREE) is not None
    leader.confirmed(view(isr=(ONE, TWO), partition_epoch=4), 2)
    assert leader.proposing
    leader.confirmed(view(isr=(ONE, TWO, THREE), partition_epoch=5), 2)
    assert not leader.proposing


def test_neither_a_stranger_nor_one_that_is_in_sync_may_join() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5)
    for broker in (TWO, THREE):
        vouch(leader, broker, 5)
    assert [leader.may_join(one) for one in (TWO, THREE, BrokerId(9))] == [False, True, False]


def test_a_leader_is_level_once_all_that_are_in_sync_hold_all_there_is() -> None:
    leader = leader_of(view(isr=(ONE, TWO)), end=5)
    vouch(leader, TWO, 4)
    assert not leader.is_level()
    vouch(leader, TWO, 5)
    assert leader.is_level(), "the third is not in sync"


def test_a_follower_that_held_all_was_level_until_there_was_more() -> None:
    leader = leader_of(view(isr=(ONE, TWO)))
    vouch(leader, TWO, 0)
    leader.appended(at(9_000), Offset(3))
    assert leader.behind(at(19_000), LAG_MAX) == []
    assert leader.behind(at(19_001), LAG_MAX) == [TWO]
