"""AlterPartitionReassignments: what is cancelled, what is refused, and what goes on beside it."""

import pytest

from harness.machines.controllers import ONE, THREE, TWO, replayed
from harness.machines.reassigning import FOUR, UNCLEAN, moving
from tidelog.coordinator.controller.requests import AlterReassignments, CreatePartitions
from tidelog.coordinator.controller.states import ReplicaState, replica_paths, replica_state
from tidelog.kernel.ids import NO_LEADER
from tidelog.kernel.limits import PARTITIONS_PER_DECISION_MAX
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.metadata_records import StopKind

NONE = ErrorCode.NONE
NOT_RUNNING = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
BAD = ErrorCode.INVALID_REPLICA_ASSIGNMENT


# -- cancelling


def test_cancelled_the_replicas_are_what_they_were_less_the_added_ones() -> None:
    it = moving(1, 2, 3)
    it.move(2, 3, 4)
    epoch = it.view().leader_epoch
    assert it.cancel() == (NONE, None)
    assert it.placement() == ((2, 3, 1), (), ())
    assert it.view().leader == ONE
    assert it.view().leader_epoch == epoch + 1  # 4 must begin anew if it is added again
    assert it.cancel() == (NOT_RUNNING, "No partition reassignment is in progress.")


def test_an_added_leader_is_replaced_when_it_is_cancelled() -> None:
    it = moving(1, 2)
    it.move(4, 5)
    it.in_sync(1, 2, 4)
    it.controlled.lose(ONE)
    it.controlled.lose(TWO)
    assert it.view().leader == FOUR
    it.controlled.join(TWO, 2)
    it.in_sync(4, 2)
    assert it.cancel() == (NONE, None)
    assert (it.view().replicas, it.view().isr, it.view().leader) == ((1, 2), (2,), TWO)


def test_it_is_not_cancelled_where_only_added_ones_are_in_sync() -> None:
    it = moving(1)
    it.move(4, 5)
    it.in_sync(1, 4)
    it.in_sync(1, 4)
    it.controlled.lose(ONE)
    before = it.view()
    code, detail = it.cancel()
    assert code == BAD
    assert detail is not None
    assert detail.endswith("t:0 because it would require an unclean leader election.")
    assert it.view() == before


def test_it_is_cancelled_all_the_same_where_unclean_elections_are_allowed_and_counted() -> None:
    it = moving(1, configs=UNCLEAN)
    it.move(4, 5)
    it.in_sync(1, 4)
    it.controlled.lose(ONE)
    assert it.cancel()[0] == BAD  # nobody is there who could lead
    it.controlled.join(ONE, 2)
    assert it.cancel() == (NONE, None)
    view = it.view()
    assert (view.replicas, view.isr, view.leader, view.lossy_elections) == ((1,), (1,), ONE, 1)


def test_a_partition_that_nobody_leads_may_be_cancelled_too() -> None:
    it = moving(1)
    it.move(4)
    it.controlled.lose(ONE)
    assert it.view().leader == NO_LEADER
    assert it.cancel() == (NONE, None)
    assert (it.view().replicas, it.view().elr) == ((1,), (1,))
    it.controlled.join(ONE, 2)
    assert it.view().leader == ONE


# -- refusals


@pytest.mark.parametrize(
    ("replicas", "detail"),
    [
        ([], "includes an empty replica list."),
        ([1, 9], "includes broker 9, but no such broker is registered."),
        ([1, -1], "includes broker -1, but no such broker is registered."),
        ([1, 4, 4], "includes the broker 4 more than once."),
    ],
)
def test_what_no_partition_may_lie_on_is_refused(replicas: list[int], detail: str) -> None:
    it = moving(1, 2)
    ((code, message),) = it.alter({0: replicas})
    assert (code, message) == (BAD, f"The manual partition assignment {detail}")


def test_each_partition_is_judged_alone() -> None:
    it = moving(1, 2)
    outcomes = it.alter({0: [3, 4], 1: None, 7: [1], -1: None})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [code for code, _ in outcomes] == [NONE, NOT_RUNNING, unknown, unknown]
    assert outcomes[2][1] == "Unable to find partition t:7."
    assert it.placement() == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert it.alter({0: [1]}, name="u") == [(unknown, "Unable to find a topic named u.")]


def test_the_number_of_replicas_stays_where_the_request_wants_it_to() -> None:
    it = moving(1, 2)
    bad = ErrorCode.INVALID_REPLICATION_FACTOR
    outcomes = it.alter({0: [1, 2, 3], 1: [3, 4]}, factor_may_change=False)
    assert outcomes == [(bad, "The replication factor is changed from 2 to 3"), (NONE, None)]
    assert it.alter({1: [4, 5]}, factor_may_change=False) == [(NONE, None)]  # of what it shall have


def test_too_many_at_once_are_refused() -> None:
    it = moving(1, 2)
    many = range(PARTITIONS_PER_DECISION_MAX + 1)
    rows = [ReassignablePartition(partition_index=n) for n in many]
    message = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=rows)]
    )
    with pytest.raises(Rejected, match="Excessively large"):
        it.controlled.ask(AlterReassignments(1, message))


# -- beside it


def test_new_partitions_get_as_many_replicas_as_the_first_shall_have() -> None:
    it = moving(1, 2)
    it.move(3, 4, 5)
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)]
    )
    it.controlled.everywhere(CreatePartitions(3, grown))
    assert len(it.view(2).replicas) == 3
    assert not it.view(2).is_moving


def test_a_topic_may_be_deleted_meanwhile() -> None:
    it = moving(1, 2)
    it.move(3, 4)
    it.controlled.delete("t")
    assert it.controlled.image.names == {}


def test_replicas_come_and_go_by_the_table_of_states() -> None:
    it = moving(1, 2)
    r = ReplicaState
    it.move(2, 3)
    states = [replica_state(it.controlled.image, it.view(), one) for one in (ONE, TWO, THREE)]
    assert states == [r.REASSIGNMENT_STARTED, r.ONLINE, r.REASSIGNMENT_STARTED]
    it.controlled.lose(ONE)
    before = replayed(it.controlled.log)
    it.in_sync(2, 3)
    assert list(replica_paths(before, it.controlled.last_records[0])) == [
        (r.ONLINE, r.ONLINE),
        (r.REASSIGNMENT_STARTED, r.ONLINE),
        (r.REASSIGNMENT_STARTED, r.OFFLINE, r.DELETION_INELIGIBLE),
    ]


def test_who_lost_its_files_is_no_reason_to_end_it() -> None:
    it = moving(1, 2, configs={"min.insync.replicas": "2"})
    it.move(2, 3)
    it.controlled.lose(TWO)
    it.controlled.join(TWO, 2, stopped=StopKind.POWER_LOSS)
    it.in_sync(1, 3)
    assert it.placement() == ((2, 3, 1), (3,), (1,))
    it.in_sync(1, 3, 2)
    assert it.placement() == ((2, 3), (), ())
