"""A client's call that is under way when the coordinator dies, or the connection: decided once."""

import pytest

from harness.machines.controllers import topic
from harness.machines.conversations import Conversation
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.limits import COORDINATOR_DOWN_WAIT_MS
from tidelog.node.metadata.link import IdBlock
from tidelog.wire.control import Forward, decode_to_coordinator
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import TopicCreated


def running(*brokers: int) -> Conversation:
    talk = Conversation()
    talk.start_coordinator()
    for broker in brokers:
        talk.start_broker(broker)
    talk.settle()
    return talk


def is_request(frame: bytes) -> bool:
    return isinstance(decode_to_coordinator(frame), Forward)


def test_calls_under_way_when_the_coordinator_dies_are_decided_by_the_next_one() -> None:
    talk = running(0)
    created = talk.create(0, topic())
    ids = talk.allocate(0)
    talk.kill_coordinator()
    assert created.result is None
    talk.start_coordinator()
    talk.settle()
    assert created.codes() == [0]
    assert isinstance(ids.result, IdBlock)


def test_where_no_next_one_comes_nobody_knows_what_became_of_them() -> None:
    talk = running(0)
    created, ids = talk.create(0, topic()), talk.allocate(0)
    talk.kill_coordinator()
    talk.wait(COORDINATOR_DOWN_WAIT_MS - 1)
    assert [call.result for call in (created, ids)] == [None, None]
    talk.wait(1)
    assert [call.result for call in (created, ids)] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]


@pytest.mark.parametrize("found", [0, 1])
def test_a_call_is_decided_once_and_answered_though_the_coordinator_dies(found: int) -> None:
    """Whether the next one finds the decision or not."""
    talk = running(0, 1)
    created = talk.create(0, topic("t", 3))
    while not talk.written:
        assert talk.deliver_one()
    talk.kill_coordinator(found=found)
    talk.start_coordinator()
    talk.settle()
    assert created.codes() == [0]
    assert sum(isinstance(record, TopicCreated) for record in talk.durable) == 1
    deleted = talk.delete(0, "t")
    while not talk.written:
        assert talk.deliver_one()
    talk.kill_coordinator(found=found)
    talk.start_coordinator()
    talk.settle()
    assert deleted.codes() == [0]


def test_the_answer_to_a_call_that_was_decided_waits_until_everyone_knows() -> None:
    talk = running(0, 1)
    created = talk.create(0, topic())
    while not talk.written:
        assert talk.deliver_one()
    talk.kill_coordinator(found=1)
    talk.start_coordinator()
    while created.result is None:
        if not talk.deliver_one():
            talk.force()
    assert all("t" in side.link.image.names for side in talk.sides.values())


def test_a_call_that_is_too_old_to_be_remembered_is_not_decided_again() -> None:
    talk = running(0)
    created = talk.create(0, topic())
    while not talk.written:
        assert talk.deliver_one()
    talk.kill_coordinator(found=1)
    talk.settled.clear()
    talk.start_coordinator(settled_from=len(talk.durable))
    talk.settle()
    assert created.result is ErrorCode.REQUEST_TIMED_OUT
    assert sum(isinstance(record, TopicCreated) for record in talk.durable) == 1


def test_a_call_of_a_session_that_had_to_be_opened_anew_is_decided_once() -> None:
    talk = running(0)
    side = talk.sides[BrokerId(0)]
    talk.allocate(0)
    talk.deliver_one()
    talk.force()
    side.inbox.popleft()
    created = talk.create(0, topic())
    talk.deliver_one()
    talk.force()
    talk.settle()
    assert created.codes() == [0]
    assert sum(isinstance(record, TopicCreated) for record in talk.durable) == 1


@pytest.mark.parametrize(
    ("by_a_bug", "code"),
    [
        ((True, True), ErrorCode.UNKNOWN_SERVER_ERROR),
        ((True, False), ErrorCode.UNKNOWN_SERVER_ERROR),
        ((False, True), ErrorCode.UNKNOWN_SERVER_ERROR),
        ((False, False), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_request_that_two_coordinators_died_with_is_not_sent_to_a_third(
    by_a_bug: tuple[bool, bool], code: ErrorCode
) -> None:
    """Its client may repeat it where somebody else has killed both."""
    talk = running(0)
    created = talk.create(0, topic())
    for is_bug in by_a_bug:
        assert created.result is None
        while not any(is_request(frame) for _, frame in talk.inbox):
            if not talk.deliver_one():
                talk.force()
        talk.kill_coordinator(by_a_bug=is_bug)
        talk.start_coordinator()
    talk.settle()
    assert created.result is code
    assert [one.api_key for one in talk.sides[BrokerId(0)].suspected] == [19]
    assert not any(isinstance(record, TopicCreated) for record in talk.durable)


def test_what_a_broker_asks_for_itself_is_asked_of_every_coordinator() -> None:
    talk = running(0)
    ids = talk.allocate(0)
    for _ in range(4):
        talk.kill_coordinator()
        talk.start_coordinator()
        while not talk.sides[BrokerId(0)].link.open_calls() or not talk.inbox:
            if not talk.deliver_one():
                talk.force()
    talk.settle()
    assert isinstance(ids.result, IdBlock)
