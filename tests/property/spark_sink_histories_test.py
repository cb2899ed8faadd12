"""The exactly-once sink of Spark under drawn failures, in a simulated cluster: after recovery each
row is read as committed once, or the run was refused.

A failure names its seed: `SinkHistory(seed).run()` is the same history again, step by step.
"""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from harness import sink_plants as plants
from harness.simulated_sink_histories import SinkHistory

HISTORIES = 15
HISTORIES_NIGHTLY = 2_000
SEARCHED = 20
PLANTS: Sequence[tuple[Callable[[pytest.MonkeyPatch], None], Sequence[str], int]] = (
    (plants.commit_when_the_input_ends, ("cuts",), 0),
    (plants.driver_ends_without_ending, ("deaths", "naps", "tasks"), 1),
    (plants.skip_by_number_only, ("deaths", "restored", "cuts"), 5),
    (plants.ignore_a_refused_end, ("naps", "cuts", "expires"), 0),
    (plants.drivers_do_not_fence_each_other, ("cuts", "deaths", "naps", "tasks"), 45),
)
"""Each with what happens in the histories that look for it, and the first that finds it now."""


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_whatever_happens_each_row_is_committed_once_or_the_run_is_refused(
    *, nightly: bool
) -> None:
    histories, first = HISTORIES, 0
    if nightly:
        histories, first = HISTORIES_NIGHTLY, Random().randrange(1 << 40)
    for seed in range(first, first + histories):
        try:
            SinkHistory(seed).run()
        except Exception as failure:
            raise AssertionError(f"SinkHistory({seed}).run()") from failure


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "kinds", "first"), PLANTS)
def test_a_fault_in_the_sink_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    kinds: Sequence[str],
    first: int,
) -> None:
    """By one of the histories from there on; the first does now, and not without the fault."""
    SinkHistory(first, kinds).run()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _run(range(first, first + SEARCHED), kinds)


def _run(seeds: range, kinds: Sequence[str]) -> None:
    for seed in seeds:
        SinkHistory(seed, kinds).run()


@pytest.mark.slow
def test_a_history_of_the_sink_is_the_same_each_time() -> None:
    one, other = SinkHistory(3), SinkHistory(3)
    one.run()
    other.run()
    assert one.cluster.timeline.steps == other.cluster.timeline.steps
    assert [len(driver.claimed) for driver in one.drivers] == [
        len(driver.claimed) for driver in other.drivers
    ]
