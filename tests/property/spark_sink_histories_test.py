"""The exactly-once sink of Spark under drawn failures, in a simulated cluster: after recovery each
row is read as committed once, or the run was refused.

A failure names its seed: `SinkHistory(seed).run()` is the same history again, step by step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.faults import sink_plants as plants
from harness.faults.planting import Plant, Planting
from harness.simulation.plans import LATE_MS_MAX, PlanRunner
from harness.simulation.sink_histories import SinkHistory
from harness.suite.budgets import Histories

PLANTS: Mapping[Plant, Sequence[str]] = {
    plants.commit_when_the_input_ends: ("cuts",),
    plants.driver_ends_without_ending: ("deaths", "naps", "tasks"),
    plants.skip_by_number_only: ("deaths", "restored", "cuts"),
    plants.ignore_a_refused_end: ("naps", "cuts", "expires"),
    plants.drivers_do_not_fence_each_other: ("beside", "clocks"),
    plants.believe_what_tasks_found: ("beside", "clocks", "naps"),
    plants.begin_without_a_permit: ("late", "cuts"),
    plants.check_the_permit_only_at_first: ("late", "cuts", "naps"),
    plants.let_go_before_the_permit_is_replaced: ("late", "cuts", "naps"),
}
"""Each with the events of the histories that look for it."""


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_whatever_happens_each_row_is_committed_once_or_the_run_is_refused(
    histories: Histories,
) -> None:
    histories.run(lambda seed: SinkHistory(seed).run())


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)
def test_a_fault_in_the_sink_would_be_found(plant: Plant, planting: Planting) -> None:
    planting.is_found(plant, lambda seed: SinkHistory(seed, PLANTS[plant]).run())


@pytest.mark.slow
def test_no_late_copy_of_a_request_comes_after_a_history_is_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may fence a driver that is to show that the query goes on."""
    history, sent = SinkHistory(1, ("copies",)), list[int]()
    send = PlanRunner._send

    def noted(runner: PlanRunner, *words: Any) -> None:
        sent.append(runner.cluster.now)
        send(runner, *words)

    monkeypatch.setattr(PlanRunner, "_send", noted)
    history._run()
    history.heal()
    healed = history.cluster.now
    history.cluster.run(2 * LATE_MS_MAX)
    assert max(sent) < healed


@pytest.mark.slow
def test_a_history_of_the_sink_is_the_same_each_time() -> None:
    one, other = SinkHistory(3), SinkHistory(3)
    one.run()
    other.run()
    assert one.cluster.timeline.steps == other.cluster.timeline.steps
    assert [len(driver.claimed) for driver in one.drivers] == [
        len(driver.claimed) for driver in other.drivers
    ]
