"""Plans that move replicas, driven by hand: what they ask, and what they make of the answers."""

import pytest

from harness.machines.plans import drive, metadata, replies, view_of
from tidelog.clients.admin.reassignments import (
    Ongoing,
    alter_reassignments,
    list_reassignments,
)
from tidelog.clients.asking import Call, Cause, Somewhere
from tidelog.clients.failures import UnsupportedError
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k45_alter_partition_reassignments as k45
from tidelog.wire.messages import k46_list_partition_reassignments as k46

ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))


def altered(code: int = 0, *rows: tuple[int, int]) -> k45.AlterPartitionReassignmentsResponse:
    partitions = [
        k45.ReassignablePartitionResponse(partition_index=n, error_code=one, error_message="why")
        for n, one in rows
    ]
    return k45.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        responses=[k45.ReassignableTopicResponse(name="t", partitions=partitions)],
    )


def listed(code: int = 0) -> k46.ListPartitionReassignmentsResponse:
    row = k46.OngoingPartitionReassignment(
        partition_index=1, replicas=[3, 0, 1], adding_replicas=[3], removing_replicas=[0]
    )
    topic = k46.OngoingTopicReassignment(name="t", partitions=[row])
    return k46.ListPartitionReassignmentsResponse(
        error_code=code, error_message=None, topics=[topic]
    )


def test_what_is_on_its_way_is_told_with_what_it_will_be() -> None:
    found = drive(list_reassignments(view_of(0, 1), [ZERO, ONE]), replies(listed()))
    assert found == {ONE: Ongoing(replicas=(3, 0, 1), adding=(3,), removing=(0,))}
    assert found[ONE].target == (3, 1)


def test_all_partitions_are_asked_about_where_none_is_named() -> None:
    asked = []

    def answer(call: Call) -> k46.ListPartitionReassignmentsResponse:
        asked.append(call.ask.message.topics)
        return listed()

    drive(list_reassignments(view_of(0)), answer)
    drive(list_reassignments(view_of(0), [ZERO]), answer)
    assert asked[0] is None
    assert [(one.name, one.partition_indexes) for one in asked[1]] == [("t", [0])]


def test_wishes_go_out_by_topic_and_none_calls_off() -> None:
    asked = []

    def answer(call: Call) -> k45.AlterPartitionReassignmentsResponse:
        asked.append(call.ask.message.topics)
        return altered(0, (0, 0), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))

    done = drive(alter_reassignments(view_of(0, 1), {ZERO: [1, 0], ONE: None}), answer)
    (topic,) = asked[0]
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [
        (0, [1, 0]),
        (1, None),
    ]
    assert [(one.partition, one.code) for one in done] == [
        (ZERO, ErrorCode.NONE),
        (ONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]


def test_a_broker_that_is_not_the_controller_sends_us_to_it() -> None:
    asked: list[int | Somewhere] = []
    given = [altered(ErrorCode.NOT_CONTROLLER), metadata(0), altered(0, (0, 0))]

    def answer(call: Call) -> object:
        asked.append(call.to)
        return given.pop(0)

    drive(alter_reassignments(view_of(0), {ZERO: [1]}), answer)
    assert asked == [Somewhere.ANY, Somewhere.ANY, Somewhere.CONTROLLER]


def test_a_refusal_of_the_whole_is_an_error() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(Rejected):
        drive(alter_reassignments(view_of(0), {ZERO: [1]}), replies(altered(code)))
    with pytest.raises(Rejected):
        drive(list_reassignments(view_of(0)), replies(listed(code)))
    with pytest.raises(UnsupportedError):
        drive(list_reassignments(view_of(0)), replies(Cause.UNSUPPORTED))
