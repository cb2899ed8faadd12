"""The states of partitions and replicas: what may become of what."""

from itertools import product

import pytest

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.controller.states import (
    PARTITION_STEPS,
    REPLICA_STEPS,
    PartitionState,
    ReplicaState,
    check_steps,
    partition_paths,
    partition_state,
    replica_paths,
    replica_state,
)
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import PartitionChanged, PartitionCreated, PartitionView

P, R = PartitionState, ReplicaState

# Rows: from; columns: to, in the order of the enum.
PARTITIONS = {
    P.NON_EXISTENT: "-x--",
    P.NEW: "--xx",
    P.ONLINE: "--xx",
    P.OFFLINE: "x-xx",
}
REPLICAS = {
    R.NON_EXISTENT: "-x------",
    R.NEW: "--xxx---",
    R.ONLINE: "--xxx---",
    R.OFFLINE: "--xxxx-x",
    R.REASSIGNMENT_STARTED: "--xxx---",
    R.DELETION_STARTED: "------xx",
    R.DELETION_SUCCESSFUL: "x-------",
    R.DELETION_INELIGIBLE: "--xx----",
}


@pytest.mark.parametrize(("before", "after"), list(product(P, P)))
def test_a_partition_goes_where_the_table_says(
    before: PartitionState, after: PartitionState
) -> None:
    allowed = PARTITIONS[before][list(P).index(after)] == "x"
    assert (after in PARTITION_STEPS[before]) == allowed


@pytest.mark.parametrize(("before", "after"), list(product(R, R)))
def test_a_replica_goes_where_the_table_says(before: ReplicaState, after: ReplicaState) -> None:
    allowed = REPLICAS[before][list(R).index(after)] == "x"
    assert (after in REPLICA_STEPS[before]) == allowed


def test_every_state_can_be_reached_and_left() -> None:
    assert set(PARTITION_STEPS) == set(P) == {P.NON_EXISTENT}.union(*PARTITION_STEPS.values())
    assert set(REPLICA_STEPS) == set(R) == {R.NON_EXISTENT}.union(*REPLICA_STEPS.values())


def states(controlled: Controlled) -> tuple[list[PartitionState], list[list[ReplicaState]]]:
    image = controlled.image
    views = image.names["t"].partitions
    return (
        [partition_state(view) for view in views],
        [[replica_state(image, view, broker) for broker in (ONE, TWO, THREE)] for view in views],
    )


def test_the_life_of_a_topic_passes_through_its_states() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.create(topic("t", assignments={0: [ONE, TWO]}))
    assert states(controlled) == ([P.ONLINE], [[R.ONLINE, R.ONLINE, R.NON_EXISTENT]])
    controlled.lose(ONE)
    assert states(controlled) == ([P.ONLINE], [[R.OFFLINE, R.ONLINE, R.NON_EXISTENT]])
    controlled.lose(TWO)
    assert states(controlled) == ([P.OFFLINE], [[R.OFFLINE, R.OFFLINE, R.NON_EXISTENT]])
    controlled.join(TWO, 2)
    assert states(controlled) == ([P.ONLINE], [[R.OFFLINE, R.ONLINE, R.NON_EXISTENT]])


def test_a_deletion_ends_for_who_lives_and_waits_for_who_does_not() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [ONE, TWO]}))
    controlled.lose(TWO)
    before = MetadataImage()
    for record in controlled.log:
        before.replay(record)
    controlled.delete("t")
    (deleted,) = controlled.log[-1:]
    assert list(partition_paths(before, deleted)) == [(P.ONLINE, P.OFFLINE, P.NON_EXISTENT)]
    assert list(replica_paths(before, deleted)) == [
        (R.ONLINE, R.OFFLINE, R.DELETION_STARTED, R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
        (R.OFFLINE, R.DELETION_INELIGIBLE),
    ]


def test_a_reassigned_replica_is_told_from_the_others() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    view = PartitionView(
        replicas=(ONE, TWO, THREE), isr=(ONE, TWO), leader=ONE, adding=(THREE,), removing=(TWO,)
    )
    found = [replica_state(controlled.image, view, one) for one in (ONE, TWO, THREE, BrokerId(9))]
    assert found == [R.ONLINE, R.REASSIGNMENT_STARTED, R.REASSIGNMENT_STARTED, R.NON_EXISTENT]


def test_a_step_that_no_table_has_is_a_bug() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic("t"))
    known = controlled.image.names["t"]
    again = PartitionCreated(known.id, 0, known.partitions[0])
    with pytest.raises(AssertionError):
        check_steps(controlled.image, again)
    stranger = PartitionView(replicas=(ONE,), isr=(), elr=(ONE,), leader=NO_LEADER)
    with pytest.raises(AssertionError):
        check_steps(controlled.image, PartitionChanged(known.id, 7, stranger))
