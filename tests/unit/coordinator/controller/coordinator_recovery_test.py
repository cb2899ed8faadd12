"""Partitions whose replicas lost files, or that may have a leader who lacks records."""

import pytest

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from harness.machines.conversations import Conversation
from harness.machines.lossy_controller import POWER_LOSS, UNCLEAN, Lossy, all_lost_power
from tidelog.coordinator.controller.front import LossyElection
from tidelog.coordinator.controller.recovery import Window
from tidelog.coordinator.controller.requests import (
    BrokerLeaving,
    TellLogEnds,
)
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, BrokerId, Epoch, Offset
from tidelog.kernel.limits import UNCLEAN_RECOVERY_WAIT_MS
from tidelog.wire.control import LogEnd
from tidelog.wire.frame import encode_request, joined
from tidelog.wire.messages.k43_elect_leaders import API as ELECT_LEADERS
from tidelog.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
)
from tidelog.wire.metadata_records import StopKind


def test_a_last_replica_that_lost_its_cache_does_not_lead_while_another_has_everything() -> None:
    """last_replica_standing (KIP-966): 2 loses power, 1 has what is committed."""
    lossy = Lossy()
    lossy.lose(ONE)
    lossy.lose(TWO)
    assert (lossy.view.isr, lossy.view.elr) == ((THREE,), (TWO,))
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    assert (lossy.view.isr, lossy.view.elr, lossy.view.last_known) == ((), (TWO,), (THREE,))
    assert lossy.view.leader == NO_LEADER
    lossy.join(TWO, 2)
    assert (lossy.view.isr, lossy.view.elr, lossy.view.last_known) == ((TWO,), (), (THREE,))
    assert lossy.view.leader == TWO
    assert lossy.view.lossy_elections == 0


def test_a_killed_replica_keeps_its_place_and_an_empty_disk_does_not() -> None:
    for stopped, elr in (
        (StopKind.KILLED, (TWO,)),
        (StopKind.CLEAN, (TWO,)),
        (StopKind.FIRST_START, ()),
        (POWER_LOSS, ()),
    ):
        lossy = Lossy()
        lossy.lose(ONE)
        lossy.lose(TWO)
        lossy.join(TWO, 2, stopped=stopped)
        assert lossy.view.elr == elr, stopped


def test_a_hung_broker_that_comes_back_in_the_same_life_has_lost_nothing() -> None:
    """How its life began was told when it registered first, and has been made good since."""
    lossy = Lossy()
    lossy.lose(ONE)
    lossy.join(TWO, 2, stopped=POWER_LOSS)
    lossy.take_back(TWO)
    lossy.lose(TWO)
    assert (lossy.view.isr, lossy.view.elr) == ((THREE,), (TWO,))
    lossy.join(TWO, 2, stopped=POWER_LOSS)
    assert (lossy.view.elr, lossy.view.last_known) == ((TWO,), ())


def test_a_partition_waits_until_all_last_known_are_back_and_one_has_all_that_is_left() -> None:
    lossy = all_lost_power()
    lossy.tell(TWO, 0, 90)
    assert lossy.view.leader == NO_LEADER
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    assert lossy.view.last_known == (TWO, THREE)
    assert lossy.view.leader == NO_LEADER, "it has not told what it has"
    lossy.tell(THREE, 0, 95, 100)
    assert (lossy.view.leader, lossy.view.isr) == (THREE, (THREE,))
    assert not (*lossy.view.elr, *lossy.view.last_known)
    assert (lossy.view.lossy_elections, lossy.view.lost_records) == (1, 5)


def test_the_latest_epoch_counts_before_the_longest_log() -> None:
    lossy = all_lost_power()
    lossy.tell(TWO, 0, 200)
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 1, 90)
    assert lossy.view.leader == THREE


def test_who_lacks_the_front_of_its_log_leads_only_if_the_others_lack_more() -> None:
    for missing, leader, lost in ((30, THREE, 10), (5, TWO, 5)):
        lossy = all_lost_power()
        lossy.tell(TWO, 0, 200, 100, missing)
        lossy.join(THREE, 2, stopped=POWER_LOSS)
        lossy.tell(THREE, 0, 90)
        assert (lossy.view.leader, lossy.view.lost_records) == (leader, lost)


def test_what_is_missing_at_the_front_and_was_never_committed_is_not_lost() -> None:
    lossy = all_lost_power()
    lossy.tell(TWO, 1, 200, 20, missing=50)
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 10)
    assert (lossy.view.leader, lossy.view.lost_records) == (TWO, 20)


def test_of_logs_with_nothing_known_committed_the_one_with_most_leads() -> None:
    lossy = all_lost_power()
    lossy.tell(TWO, 0, 90, missing=40)
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 60)
    assert (lossy.view.leader, lossy.view.lost_records) == (THREE, 0)


def test_of_equal_ones_the_preferred_leads() -> None:
    lossy = all_lost_power()
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 90)
    lossy.tell(TWO, 0, 90)
    assert lossy.view.leader == TWO


def test_among_all_who_are_back_even_one_that_was_behind_may_have_most() -> None:
    lossy = all_lost_power()
    lossy.join(ONE, 2)
    lossy.tell(TWO, 0, 90)
    lossy.tell(ONE, 0, 94)
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 92)
    assert lossy.view.leader == ONE


def test_whose_log_cannot_be_used_is_heard_and_not_elected() -> None:
    lossy = all_lost_power()
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(TWO, -1, NO_OFFSET, NO_OFFSET)
    assert lossy.view.leader == NO_LEADER
    lossy.tell(THREE, 0, 3)
    assert lossy.view.leader == THREE


def test_what_an_earlier_life_had_counts_for_nothing() -> None:
    lossy = all_lost_power()
    lossy.tell(TWO, 0, 90)
    lossy.lose(TWO)
    lossy.join(TWO, 3)
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 80)
    assert lossy.view.leader == NO_LEADER
    lossy.tell(TWO, 0, 70)
    assert lossy.view.leader == THREE


def test_what_was_told_in_another_leader_epoch_counts_for_nothing() -> None:
    lossy = all_lost_power()
    late = LogEnd(
        topic=lossy.image.names["t"].id,
        partition=0,
        leader_epoch=Epoch(lossy.view.leader_epoch - 1),
        last_epoch=Epoch(9),
        end=Offset(1_000),
        high_watermark=Offset(0),
    )
    lossy.join(THREE, 2, stopped=POWER_LOSS)
    lossy.tell(THREE, 0, 80)
    lossy.ask(TellLogEnds(TWO, lossy.image.brokers[TWO].incarnation, (late,)))
    assert lossy.view.leader == NO_LEADER


def test_the_only_replica_leads_at_once_after_a_power_loss() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic())
    controlled.lose(ONE)
    controlled.join(ONE, 2, stopped=POWER_LOSS)
    (view,) = controlled.image.names["t"].partitions
    assert (view.leader, view.isr, view.lossy_elections) == (ONE, (ONE,), 1)


# -- unclean elections


def left_behind(configs: dict[str, str | None]) -> Lossy:
    """The first one led alone, and is gone with 100 records; the second has 60, the third 50."""
    lossy = Lossy({"min.insync.replicas": "1", **configs})
    for broker in (TWO, THREE):
        lossy.lose(broker)
        lossy.join(broker, 2)
    lossy.lose(ONE)
    assert (lossy.view.leader, lossy.view.isr, lossy.view.elr) == (NO_LEADER, (), (ONE,))
    return lossy


def test_unclean_off_leaves_a_partition_without_a_leader_until_its_own_comes_back() -> None:
    lossy = left_behind({})
    lossy.tell(TWO, 0, 60, 60)
    lossy.tell(THREE, 0, 50, 50)
    lossy.wait(10 * UNCLEAN_RECOVERY_WAIT_MS)
    assert lossy.view.leader == NO_LEADER
    lossy.join(ONE, 2)
    assert (lossy.view.leader, lossy.view.lossy_elections) == (ONE, 0)


def test_unclean_on_elects_who_has_most_as_soon_as_all_who_live_told_and_counts_it() -> None:
    lossy = left_behind(UNCLEAN)
    lossy.tell(THREE, 0, 50, 64)
    assert lossy.view.leader == NO_LEADER
    lossy.tell(TWO, 0, 60, 60)
    assert (lossy.view.leader, lossy.view.isr, lossy.view.elr) == (TWO, (TWO,), ())
    assert (lossy.view.lossy_elections, lossy.view.lost_records) == (1, 4)


def test_unclean_on_elects_as_soon_as_the_last_one_who_has_not_told_is_lost() -> None:
    """Its death changes nothing in the partition, so nobody tells anything anew because of it."""
    lossy = left_behind(UNCLEAN)
    lossy.tell(THREE, 0, 50, 50)
    assert lossy.view.leader == NO_LEADER
    lossy.lose(TWO)
    lossy.wait(0)
    assert lossy.view.leader == THREE


def test_unclean_on_elects_as_soon_as_the_last_one_who_has_not_told_stops() -> None:
    lossy = left_behind(UNCLEAN)
    lossy.tell(THREE, 0, 50, 50)
    lossy.ask(BrokerLeaving(TWO, lossy.image.brokers[TWO].incarnation))
    lossy.wait(0)
    assert lossy.view.leader == THREE


def test_unclean_elections_wait_a_while_for_who_lost_power() -> None:
    lossy = Lossy(UNCLEAN)
    for broker in (ONE, TWO, THREE):
        lossy.lose(broker)
    lossy.join(TWO, 2, stopped=POWER_LOSS)
    lossy.lose(TWO)
    lossy.join(ONE, 2)
    lossy.tell(ONE, 0, 50)
    lossy.wait(UNCLEAN_RECOVERY_WAIT_MS - 1)
    assert lossy.view.leader == NO_LEADER
    lossy.wait(1)
    assert (lossy.view.leader, lossy.view.lossy_elections) == (ONE, 1)


def test_to_allow_unclean_elections_elects_at_once() -> None:
    lossy = left_behind({})
    lossy.tell(TWO, 0, 60)
    lossy.tell(THREE, 0, 50)
    lossy.allow_unclean()
    assert lossy.view.leader == NO_LEADER
    lossy.wait(0)
    assert lossy.view.leader == TWO


def test_an_unclean_election_by_hand_needs_no_setting() -> None:
    lossy = left_behind({})
    assert lossy.elect_unclean() == 83, "nobody has told what it has"
    lossy.tell(THREE, 0, 50)
    assert lossy.elect_unclean() == 0
    assert (lossy.view.leader, lossy.view.lossy_elections) == (THREE, 1)
    assert lossy.elect_unclean() == 84, "it has a leader"


# -- over the pipes


@pytest.mark.parametrize("coordinator_dies", [False, True])
def test_brokers_tell_by_themselves_what_they_have(*, coordinator_dies: bool) -> None:
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(3):
        talk.start_broker(broker)
    talk.settle()
    talk.create(0, topic("t", 4, 3))
    talk.settle()
    for broker in range(3):
        talk.kill_broker(broker)
        talk.settle()
    for broker, end in ((0, 90), (1, 95)):
        side = talk.start_broker(broker, 2, stopped=POWER_LOSS)
        side.end = Offset(end)
    talk.settle()
    partitions = talk.shard.image.names["t"].partitions
    assert {view.leader for view in partitions} == {NO_LEADER}, (
        "the third had all that is committed"
    )
    if coordinator_dies:
        talk.kill_coordinator()
        talk.start_coordinator()
        talk.settle()
    talk.start_broker(2, 2, stopped=POWER_LOSS).end = Offset(80)
    talk.settle()
    views = talk.shard.image.names["t"].partitions
    assert {view.leader for view in views} == {1}
    assert {view.lossy_elections for view in views} == {1}


def test_a_new_coordinator_is_told_anew_though_nothing_has_changed() -> None:
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(2):
        talk.start_broker(broker)
    talk.settle()
    talk.create(0, topic("t", assignments={0: [1, 0]}))
    talk.settle()
    for broker in range(2):
        talk.kill_broker(broker)
        talk.settle()
    talk.start_broker(0, 2, stopped=StopKind.KILLED)
    talk.settle()
    (view,) = talk.shard.image.names["t"].partitions
    assert (view.leader, view.elr) == (NO_LEADER, (1,))
    talk.kill_coordinator()
    talk.start_coordinator()
    talk.settle()
    request = ElectLeadersRequest(election_type=1, topic_partitions=None)
    talk._forward(0, joined(encode_request(ELECT_LEADERS, 2, 43 << 24, None, request)))
    talk.settle()
    (view,) = talk.shard.image.names["t"].partitions
    assert (view.leader, view.lossy_elections) == (0, 1)


def test_an_election_that_loses_records_is_said_aloud_once_it_is_on_disk() -> None:
    talk = Conversation()
    talk.start_coordinator()
    talk.start_broker(0)
    talk.settle()
    talk.create(0, topic("t"))
    talk.settle()
    talk.kill_broker(0)
    talk.settle()
    talk.start_broker(0, 2, stopped=POWER_LOSS)
    while talk.deliver_one():
        pass
    talk.force()
    assert talk.logged == []
    talk.settle()
    assert talk.logged == [LossyElection("t", 0, BrokerId(0), Epoch(2), Window(0))]
