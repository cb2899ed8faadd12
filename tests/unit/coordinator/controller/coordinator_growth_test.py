"""CreatePartitions as the controller decides it."""

import pytest

from harness.machines.controllers import ONE, TWO, Controlled, topic
from tidelog.coordinator.controller.requests import CreatePartitions
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@pytest.fixture
def controlled() -> Controlled:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", 2), topic("u"))
    return controlled


def more(name: str, count: int, *brokers: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=[one]) for one in brokers] or None,
    )


def grow(
    controlled: Controlled, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    message = CreatePartitionsRequest(
        topics=list(topics), timeout_ms=1000, validate_only=validate_only
    )
    reply = controlled.everywhere(CreatePartitions(3, message))
    assert isinstance(reply, CreatePartitionsResponse)
    return reply.results


def partitions(controlled: Controlled, name: str) -> int:
    return len(controlled.image.names[name].partitions)


def test_a_topic_grows_and_its_old_partitions_stay(controlled: Controlled) -> None:
    before = list(controlled.image.names["t"].partitions)
    (row,) = grow(controlled, more("t", 5))
    assert (row.name, row.error_code, row.error_message) == ("t", 0, None)
    views = controlled.image.names["t"].partitions
    assert views[:2] == before
    assert len(views) == 5
    assert {view.leader for view in views[2:]} == {ONE, TWO}


def test_new_partitions_lie_where_they_are_put(controlled: Controlled) -> None:
    (row,) = grow(controlled, more("t", 4, TWO, ONE))
    assert row.error_code == 0
    assert [view.leader for view in controlled.image.names["t"].partitions[2:]] == [TWO, ONE]


@pytest.mark.parametrize(
    ("asked", "code", "detail"),
    [
        (more("t", 2), 37, "Topic already has 2 partition(s)."),
        (more("t", 1), 37, "currently has 2 partition(s); 1 would not be an increase"),
        (more("t", -1), 37, "would not be an increase"),
        (more("t", 10_001), 37, "at most 10000"),
        (more("no", 3), 3, "does not host"),
        (more("t", 4, ONE), 39, "add 2 additional partition(s), but only 1 assignment(s)"),
        (more("t", 3, 7), 39, "broker 7, but no such broker"),
    ],
)
def test_growth_that_cannot_be_is_refused(
    controlled: Controlled, asked: CreatePartitionsTopic, code: int, detail: str
) -> None:
    refused, other = grow(controlled, asked, more("u", 2))
    assert refused.error_code == code
    assert detail in (refused.error_message or "")
    assert other.error_code == 0
    assert (partitions(controlled, "t"), partitions(controlled, "u")) == (2, 2)


def test_an_internal_topic_keeps_its_partitions(controlled: Controlled) -> None:
    controlled.create(topic("__consumer_offsets"))
    (row,) = grow(controlled, more("__consumer_offsets", 3))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert partitions(controlled, "__consumer_offsets") == 1


def test_a_topic_named_twice_does_not_grow(controlled: Controlled) -> None:
    (row,) = grow(controlled, more("t", 3), more("t", 4))
    assert (row.error_code, row.error_message) == (42, "Duplicate topic name.")
    assert partitions(controlled, "t") == 2


def test_a_trial_makes_nothing(controlled: Controlled) -> None:
    (row,) = grow(controlled, more("t", 3), validate_only=True)
    assert row.error_code == 0
    assert partitions(controlled, "t") == 2


def test_nothing_grows_where_no_broker_lives(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.lose(TWO)
    (row,) = grow(controlled, more("t", 3))
    assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    (row,) = grow(controlled, more("t", 3, ONE))
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_answer_waits_until_every_live_broker_has_the_partitions(
    controlled: Controlled,
) -> None:
    message = CreatePartitionsRequest(topics=[more("t", 3)], timeout_ms=1000)
    assert controlled.ask(CreatePartitions(3, message)) is None
    asked = controlled.last_asked
    controlled.apply(ONE)
    assert asked not in controlled.replies
    controlled.apply(TWO)
    assert asked in controlled.replies


def test_one_request_makes_only_so_many_partitions(controlled: Controlled) -> None:
    first, second = grow(controlled, more("t", 6000), more("u", 6000))
    assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_PARTITIONS)
