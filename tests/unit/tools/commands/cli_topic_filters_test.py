"""Which partitions `topic describe` leaves out: a table of states."""

import pytest

from tidelog.clients.admin.reassignments import Ongoing
from tidelog.clients.cluster_view import PartitionView
from tidelog.kernel.ids import BrokerId, Epoch
from tidelog.tools.commands.topic_describe import FILTERS, State

UNDER, GONE, BELOW, AT = "under_replicated", "unavailable", "under_min_isr", "at_min_isr"
MOVING = Ongoing(replicas=(3, 0, 1, 2), adding=(3,), removing=(2,))


def state(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    leader: int = 0,
    least: int = 1,
    ongoing: Ongoing | None = None,
) -> State:
    view = PartitionView(BrokerId(leader), Epoch(0), replicas, isr, ())
    return State(view, ongoing, {0, 1, 2}, least)


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        (state((0, 1, 2), (0, 1, 2)), set()),
        (state((0, 1, 2), (0, 1)), {UNDER}),
        (state((0, 1, 2), (0,)), {UNDER, AT}),
        (state((0, 1, 2), (0,), least=2), {UNDER, BELOW}),
        (state((0, 1, 2), (0, 1), least=2), {UNDER, AT}),
        (state((0,), (0,), least=2), {AT}),  # more than there are replicas are never asked for
        (state((0, 1, 2), (), leader=-1), {UNDER, GONE, BELOW}),
        (state((3,), (3,), leader=3), {GONE, AT}),  # its leader is not there
        (state((3, 0, 1, 2), (0, 1, 2), ongoing=MOVING), set()),
        (state((3, 0, 1, 2), (0, 1), ongoing=MOVING), {UNDER}),
    ],
)
def test_a_partition_is_shown_for_what_it_lacks(found: State, chosen: set[str]) -> None:
    assert {name for name, holds in FILTERS.items() if holds(found)} == chosen
