"""Every planted hole of the controller is seen by a history that the controller as it is keeps."""

from collections.abc import Callable

import pytest

from harness.faults.controller_plants import PLANTS, plant_of
from harness.faults.planting import Planting
from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.controller.requests import AlterIsr, IncrementalAlterConfigs
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.wire.control import IsrChange
from tidelog.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.metadata_records import PartitionView, StopKind


def three(min_in_sync: int = 2) -> Controlled:
    controlled = Controlled(ONE, TWO, THREE)
    configs: dict[str, str | None] = {"min.insync.replicas": str(min_in_sync)}
    controlled.create(topic("t", assignments={0: [ONE, TWO, THREE]}, configs=configs))
    return controlled


def view(controlled: Controlled) -> PartitionView:
    return controlled.image.names["t"].partitions[0]


def proposal(controlled: Controlled, *isr: BrokerId) -> AlterIsr:
    """What the leader would have written down, as of now."""
    now, brokers = view(controlled), controlled.image.brokers
    change = IsrChange(
        topic=controlled.image.names["t"].id,
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=tuple((one, brokers[one].epoch) for one in isr),
    )
    return AlterIsr(now.leader, brokers[now.leader].incarnation, (change,))


def set_minimum(controlled: Controlled, value: int) -> None:
    entry = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
    row = AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
    request = IncrementalAlterConfigsRequest(resources=[row], validate_only=False)
    controlled.everywhere(IncrementalAlterConfigs(1, request))


def fenced_broker_not_in_isr() -> None:
    controlled = three()
    controlled.ask(proposal(controlled, ONE, THREE))
    late = proposal(controlled, ONE, TWO, THREE)
    controlled.lose(TWO)
    controlled.ask(late)
    assert TWO not in view(controlled).isr


def stale_alter_partition() -> None:
    controlled = three()
    controlled.ask(proposal(controlled, ONE, THREE))
    late = proposal(controlled, ONE, TWO, THREE)
    controlled.lose(TWO)
    controlled.join(TWO, 2, stopped=StopKind.FIRST_START)
    controlled.ask(late)
    assert TWO not in view(controlled).isr, "its disk is empty"


def old_change_comes_again() -> None:
    controlled = three()
    controlled.ask(proposal(controlled, ONE, TWO))
    growth = proposal(controlled, ONE, TWO, THREE)
    controlled.ask(growth)
    controlled.ask(proposal(controlled, ONE, TWO))
    controlled.ask(growth)
    assert view(controlled).isr == (ONE, TWO), "the third one fell behind since"


def last_replica_standing() -> None:
    controlled = three()
    controlled.lose(ONE)
    controlled.lose(TWO)
    controlled.lose(THREE)
    assert set(view(controlled).elr) == {TWO, THREE}
    controlled.join(THREE, 2, stopped=StopKind.POWER_LOSS)
    assert view(controlled).leader == NO_LEADER, "it may lack what the second one has"


def fewer_are_enough_from_now_on() -> None:
    controlled = three(min_in_sync=3)
    controlled.lose(TWO)
    assert view(controlled).elr == (TWO,)
    set_minimum(controlled, 2)  # from here on records are committed without it
    set_minimum(controlled, 3)
    controlled.lose(ONE)
    controlled.lose(THREE)
    controlled.join(TWO, 2)
    assert view(controlled).leader == NO_LEADER, "it may lack what was committed since"


def lossy_elections_are_counted() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic("t"))
    controlled.lose(ONE)
    controlled.join(ONE, 2, stopped=StopKind.POWER_LOSS)
    assert (view(controlled).leader, view(controlled).lossy_elections) == (ONE, 1)


HISTORIES: dict[str, Callable[[], None]] = {
    "KIP-841": fenced_broker_not_in_isr,
    "KIP-903": stale_alter_partition,
    "KIP-320": old_change_comes_again,
    "KIP-966": last_replica_standing,
    "KIP-966 forgotten": fewer_are_enough_from_now_on,
    "unclean election": lossy_elections_are_counted,
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_hole_is_noticed_by_its_scenario(plant: str, planting: Planting) -> None:
    planting.is_noticed(plant_of(plant), HISTORIES[plant])
