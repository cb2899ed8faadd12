"""Brokers and the coordinator together: joining, staying current, calls, and losing each other."""

from harness.machines.controllers import topic
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.front import GiveUp, PeerLost
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.limits import COORDINATOR_DOWN_WAIT_MS, JOIN_AGAIN_MS, METADATA_APPLY_WAIT_MS
from tidelog.node.metadata.link import IdBlock
from tidelog.node.runtime.shard_host import AppendFailed
from tidelog.wire.control import RegisterAgain, encode
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import BrokerRegistered, TopicCreated


def running(*brokers: int) -> Conversation:
    talk = Conversation()
    talk.start_coordinator()
    for broker in brokers:
        talk.start_broker(broker)
    talk.settle()
    return talk


def test_a_broker_joins_once_its_own_image_says_that_it_lives() -> None:
    talk = running(0)
    side = talk.sides[BrokerId(0)]
    assert side.epochs == [Offset(5)]
    assert side.link.image.alive() == [0]
    assert side.link.image == talk.shard.image


def test_a_broker_never_acts_on_half_an_image() -> None:
    talk = running(0)
    talk.create(0, topic("a"), topic("b"))
    talk.settle()
    talk.create(0, topic("c"))
    talk.settle()
    late = talk.start_broker(1)
    talk.settle()
    assert {one.name for one in late.changes[0].created} == {"a", "b", "c"}


def test_what_is_not_on_disk_is_not_told_to_anyone() -> None:
    talk = running(0)
    created = talk.create(0, topic())
    talk.deliver_one()
    while talk.deliver_one():
        pass
    assert talk.written
    assert created.result is None
    assert talk.sides[BrokerId(0)].link.image.names == {}
    talk.settle()
    assert created.codes() == [0]


def test_an_answered_creation_is_known_to_every_broker() -> None:
    talk = running(0, 1, 2)
    created = talk.create(1, topic("t", 3))
    while created.result is None:
        if not talk.deliver_one():
            talk.force()
    assert all("t" in side.link.image.names for side in talk.sides.values())


def test_an_answered_deletion_is_known_to_every_broker() -> None:
    talk = running(0, 1)
    talk.create(0, topic("t"))
    talk.settle()
    deleted = talk.delete(1, "t")
    talk.settle()
    assert deleted.codes() == [0]
    assert all("t" not in side.link.image.names for side in talk.sides.values())


def test_a_refused_call_is_answered_in_the_words_of_its_api() -> None:
    talk = running(0)
    created = talk.create(0, topic("t", 0), topic(".."))
    talk.settle()
    assert created.codes() == [
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_frame_that_the_coordinator_cannot_read_is_an_invalid_request() -> None:
    talk = running(0)
    outcomes = [talk._forward(0, bytes(4) + frame) for frame in (b"", b"\0" * 12, b"\xff" * 40)]
    talk.settle()
    assert [one.result for one in outcomes] == [ErrorCode.INVALID_REQUEST] * 3


def test_blocks_of_ids_come_back() -> None:
    talk = running(0, 1)
    first, second = talk.allocate(0), talk.allocate(1)
    talk.settle()
    assert isinstance(first.result, IdBlock)
    assert isinstance(second.result, IdBlock)
    assert second.result.first == first.result.first + first.result.count


def test_the_coordinator_s_death_leaves_the_image_and_the_membership_as_they_are() -> None:
    talk = running(0, 1)
    talk.create(0, topic("t"))
    talk.settle()
    talk.kill_coordinator()
    side = talk.sides[BrokerId(0)]
    assert side.link.image.alive() == [0, 1]
    records = len(talk.durable)
    talk.start_coordinator()
    talk.settle()
    assert len(talk.durable) == records + 1, "nothing but the new controller's epoch"
    assert side.epochs == [Offset(5)]
    assert side.fenced == 0
    assert side.link.image == talk.shard.image
    assert talk.epochs == [1, 2]


def test_a_call_made_while_the_coordinator_is_down_is_made_when_it_is_back() -> None:
    talk = running(0)
    talk.kill_coordinator()
    created = talk.create(0, topic())
    talk.wait(COORDINATOR_DOWN_WAIT_MS - 1)
    assert created.result is None
    talk.start_coordinator()
    talk.settle()
    assert created.codes() == [0]


def test_a_call_that_never_left_is_refused_so_that_it_may_be_made_again() -> None:
    talk = running(0)
    talk.kill_coordinator()
    created, ids = talk.create(0, topic()), talk.allocate(0)
    talk.wait(COORDINATOR_DOWN_WAIT_MS)
    assert created.result is ErrorCode.NOT_CONTROLLER
    assert ids.result is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_call_past_its_deadline_is_answered_here_and_not_decided_there() -> None:
    talk = running(0)
    created = talk.create(0, topic())
    talk.wait(5_000)
    assert created.result is ErrorCode.REQUEST_TIMED_OUT
    talk.settle()
    assert talk.shard.image.names == {}
    assert "a call past its deadline" in talk.ignored


def test_a_message_to_an_earlier_coordinator_is_dropped() -> None:
    talk = running(0)
    talk.create(0, topic())
    (message,) = talk.inbox
    talk.wait(5_000)
    talk.kill_coordinator()
    talk.start_coordinator()
    talk.settle()
    talk.inbox.append(message)
    talk.settle()
    assert "it is meant for an earlier coordinator" in talk.ignored
    assert talk.shard.image.names == {}


def test_bytes_that_are_no_message_change_nothing() -> None:
    talk = running(0)
    records = len(talk.durable)
    talk.inbox.extend([(b"0/1", b""), (b"0/1", b"\xc1"), (b"stranger", b"\x91\x02")])
    talk.sides[BrokerId(0)].inbox.append(b"\xc1")
    talk.settle()
    talk.wait(1_000)
    talk.settle()
    assert len(talk.durable) == records
    assert talk.sides[BrokerId(0)].link.image == talk.shard.image


def test_a_broken_connection_is_made_up_for() -> None:
    talk = running(0, 1)
    talk.create(0, topic("a"))
    talk.deliver_one()
    talk.force()
    talk.break_connection(1)
    talk.settle()
    assert "a" in talk.sides[BrokerId(1)].link.image.names
    assert len(talk.sides[BrokerId(1)].epochs) == 1


def test_a_lost_message_is_noticed_by_the_gap_it_leaves() -> None:
    talk = running(0)
    side = talk.sides[BrokerId(0)]
    talk.create(0, topic("a"))
    talk.deliver_one()
    talk.force()
    side.inbox.clear()
    talk.create(0, topic("b"))
    talk.settle()
    assert set(side.link.image.names) == {"a", "b"}


def test_a_fenced_broker_hears_of_it_and_is_taken_back_in_a_new_epoch() -> None:
    talk = running(0)
    side = talk.sides[BrokerId(0)]
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    talk.settle()
    assert side.fenced == 1
    assert len(side.epochs) == 2
    assert side.link.image.alive() == [0]


def test_a_fence_word_is_up_when_the_record_is_on_disk_and_not_before() -> None:
    talk = running(0, 1)
    epoch = talk.sides[BrokerId(0)].epochs[0]
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    assert talk.fences == {}
    talk.force()
    assert talk.fences == {BrokerId(0): epoch}
    talk.settle()
    assert talk.sides[BrokerId(0)].epochs[1] > epoch
    assert talk.fences == {BrokerId(0): epoch}


def test_the_next_coordinator_puts_up_the_fence_words_that_the_last_one_could_not() -> None:
    talk = running(0, 1)
    epoch = talk.sides[BrokerId(0)].epochs[0]
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    talk.kill_coordinator(found=1)
    talk.start_coordinator()
    assert talk.fences[BrokerId(0)] == epoch
    talk.settle()
    assert talk.shard.image.alive() == [0, 1]
    assert talk.sides[BrokerId(0)].epochs[-1] > talk.fences[BrokerId(0)]


def test_a_broker_that_leaves_is_fenced_and_stays_so() -> None:
    talk = running(0, 1)
    talk.create(0, topic("t", 2))
    talk.settle()
    left = talk.leave(0)
    talk.settle()
    talk.wait(10_000)
    talk.settle()
    assert left.result is ErrorCode.NONE
    assert talk.shard.image.alive() == [1]


def test_a_broker_that_leaves_while_nobody_is_there_goes_anyway() -> None:
    talk = running(0)
    talk.kill_coordinator()
    left = talk.leave(0)
    talk.wait(COORDINATOR_DOWN_WAIT_MS)
    assert left.result is ErrorCode.NOT_CONTROLLER


def test_an_earlier_life_is_told_that_it_may_not_join() -> None:
    talk = running()
    talk.start_broker(0, incarnation=5)
    talk.settle()
    old = talk.start_broker(0, incarnation=4)
    talk.settle()
    assert old.turned_away == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]
    assert old.epochs == []


def test_a_new_life_takes_over_where_the_last_one_died() -> None:
    talk = running(0)
    talk.create(0, topic("t"))
    talk.settle()
    talk.kill_broker(0)
    side = talk.start_broker(0, incarnation=2)
    talk.settle()
    (view,) = side.link.image.names["t"].partitions
    assert (view.leader, view.leader_epoch) == (0, 2)
    assert [one.name for one in side.changes[0].created] == ["t"]


def test_a_late_welcome_by_an_earlier_coordinator_is_not_taken_for_the_new_one_s() -> None:
    talk = running()
    side = talk.start_broker(0)
    talk.deliver_one()
    talk.force()
    welcome = side.inbox[0]
    talk.settle()
    talk.kill_coordinator()
    talk.start_coordinator()
    side.inbox.append(welcome)
    created = talk.create(0, topic())
    talk.settle()
    assert created.codes() == [0]


def test_a_broker_fenced_again_before_it_was_taken_back_asks_once_more() -> None:
    talk = running(0)
    lost = BrokerLost(BrokerId(0), Incarnation(1))
    talk.tell(lost)
    talk.force()
    for _ in range(3):  # the news, its acknowledgement, and the registration
        talk.deliver_one()
    talk.tell(lost)
    talk.settle()
    assert talk.shard.image.alive() == []
    talk.wait(JOIN_AGAIN_MS)
    talk.settle()
    assert talk.shard.image.alive() == [0]
    assert talk.sides[BrokerId(0)].link.deadline() is None


def test_with_the_coordinator_gone_a_leaving_broker_asks_for_nothing_more() -> None:
    talk = running(0)
    talk.leave(0)
    talk.kill_coordinator()
    talk.start_coordinator()
    assert not talk.inbox
    assert talk.sides[BrokerId(0)].link.deadline() is None


def test_a_creation_is_answered_though_a_broker_hangs() -> None:
    talk = running(0, 1)
    created = talk.create(0, topic())
    talk.deliver_one()
    talk.force()
    talk.sides[BrokerId(1)].inbox.clear()
    talk.settle()
    assert created.result is None
    talk.wait(METADATA_APPLY_WAIT_MS)
    talk.settle()
    assert created.codes() == [0]


def test_a_broker_whose_connection_the_coordinator_forgot_registers_again() -> None:
    talk = running(0)
    side = talk.sides[BrokerId(0)]
    assert talk.front is not None
    talk.front.step(talk.now, PeerLost(side.peer))
    talk.create(0, topic("lost"))
    talk.settle()
    created = talk.create(0, topic("t"))
    talk.settle()
    assert created.codes() == [0]
    assert "t" in side.link.image.names
    assert side.epochs == [Offset(5)]


def test_who_is_registering_already_is_not_sent_round_in_circles() -> None:
    talk = running()
    side = talk.start_broker(0)
    side.inbox.append(encode(RegisterAgain()))
    talk.settle()
    assert len(side.epochs) == 1
    assert sum(isinstance(one, BrokerRegistered) for one in talk.durable) == 1


def test_an_earlier_life_that_is_turned_away_does_not_silence_the_later_one() -> None:
    talk = running()
    later = talk.start_broker(0, incarnation=5)
    talk.settle()
    talk.start_broker(0, incarnation=4)
    talk.settle()
    talk.sides[BrokerId(0)] = later
    created = talk.create(0, topic("t"))
    talk.settle()
    assert created.codes() == [0]


def test_a_write_that_fails_ends_the_coordinator_and_the_next_one_decides() -> None:
    talk = running(0)
    created = talk.create(0, topic("t"))
    talk.deliver_one()
    assert talk.front is not None
    effects = talk.front.step(talk.now, AppendFailed("disk is full"))
    assert effects[-1] == GiveUp("the metadata log could not be written: disk is full")
    talk._coordinator_effects(effects[:-1])
    talk.kill_coordinator()
    talk.start_coordinator()
    talk.settle()
    assert created.codes() == [0]
    assert sum(isinstance(record, TopicCreated) for record in talk.durable) == 1
