"""DeleteTopics: by name and by id, and what is refused."""

import pytest

from harness.machines.controllers import ONE, Controlled, topic
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.front import TopicGone
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import ZERO_UUID, BrokerId, Uuid
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k20_delete_topics import DeleteTopicState
from tidelog.wire.metadata_records import TopicDeleted

UNKNOWN = Uuid(b"?" * 16)


def by_id(topic_id: Uuid) -> DeleteTopicState:
    return DeleteTopicState(name=None, topic_id=topic_id)


@pytest.fixture
def controlled() -> Controlled:
    controlled = Controlled(ONE)
    controlled.create(topic("a", 2), topic("b"))
    return controlled


def test_a_topic_goes_by_its_name(controlled: Controlled) -> None:
    topic_id = controlled.image.names["a"].id
    (result,) = controlled.delete("a")
    assert (result.name, result.topic_id, result.error_code) == ("a", topic_id, 0)
    assert controlled.log[-1] == TopicDeleted(topic_id)
    assert set(controlled.image.names) == {"b"}


def test_a_topic_goes_by_its_id(controlled: Controlled) -> None:
    topic_id = controlled.image.names["a"].id
    (result,) = controlled.delete(by_id(topic_id))
    assert (result.name, result.topic_id, result.error_code) == ("a", topic_id, 0)
    assert set(controlled.image.names) == {"b"}


def test_a_name_is_free_again_and_gets_another_id(controlled: Controlled) -> None:
    old = controlled.image.names["a"].id
    controlled.delete("a")
    (result,) = controlled.create(topic("a"))
    assert result.error_code == 0
    assert result.topic_id != old


def test_what_is_not_there_cannot_go(controlled: Controlled) -> None:
    results = controlled.delete("c", by_id(UNKNOWN), "a")
    assert [(one.name, one.topic_id, one.error_code) for one in results[:2]] == [
        ("c", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert results[2].error_code == 0


def test_a_topic_named_twice_stays(controlled: Controlled) -> None:
    results = controlled.delete("a", "a", "b")
    assert [(one.name, one.error_code) for one in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert set(controlled.image.names) == {"a"}


def test_a_topic_named_and_given_by_its_id_stays(controlled: Controlled) -> None:
    results = controlled.delete("a", by_id(controlled.image.names["a"].id))
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert set(controlled.image.names) == {"a", "b"}


def test_an_id_given_twice_deletes_nothing(controlled: Controlled) -> None:
    asked = by_id(controlled.image.names["a"].id)
    (result,) = controlled.delete(asked, asked)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.name is None


@pytest.mark.parametrize(
    "state",
    [DeleteTopicState(name=None), DeleteTopicState(name="a", topic_id=UNKNOWN)],
    ids=["neither", "both"],
)
def test_a_request_that_names_neither_or_both_is_refused_whole(
    controlled: Controlled, state: DeleteTopicState
) -> None:
    with pytest.raises(Rejected) as refused:
        controlled.delete("b", state)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert set(controlled.image.names) == {"a", "b"}


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_a_cluster_may_forbid_deletion(version: int, code: ErrorCode) -> None:
    controlled = Controlled(ONE, settings=ControllerSettings(delete_enabled=False))
    controlled.create(topic("a"))
    with pytest.raises(Rejected) as refused:
        controlled.delete("a", version=version)
    assert refused.value.code is code


def test_who_is_down_and_deletes_it_later_is_told() -> None:
    talk = Conversation()
    talk.start_coordinator()
    for broker in (0, 1):
        talk.start_broker(broker)
    talk.settle()
    talk.create(0, topic("t", 2, 2))
    talk.settle()
    topic_id = talk.shard.image.names["t"].id
    talk.kill_broker(1)
    talk.settle()
    talk.delete(0, "t")
    talk.settle()
    assert talk.logged == [TopicGone("t", topic_id, 2, (BrokerId(1),))]
    talk.create(0, topic("t"))  # the name is free at once
    talk.settle()
    assert talk.shard.image.names["t"].id != topic_id
