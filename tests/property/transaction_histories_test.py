"""Transactions under drawn faults: every outcome is one, and everybody who heard of it heard true.

A failure names its seed: `History(seed).run()` is the same history again, step by step. Each check
has been seen failing on a plant, which stands here.
"""

from random import Random

import pytest

from harness import transaction_plants as plants
from harness.transaction_histories import History
from tidelog.coordinator.transactions import decisions, endings

HISTORIES = 100
HISTORIES_NIGHTLY = 5_000
HISTORIES_AT_THE_LAST_EPOCH = 25
SEARCHED = 300


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_happens_each_transaction_ends_one_way(*, nightly: bool) -> None:
    histories, first = HISTORIES, 0
    if nightly:
        histories, first = HISTORIES_NIGHTLY, Random().randrange(1 << 40)
    for seed in range(first, first + histories):
        try:
            History(seed).run()
        except Exception as failure:
            raise AssertionError(f"History({seed}).run()") from failure


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nor_does_it_matter_that_epochs_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer gets another id after four of them, and not after 32,767."""
    for module in (decisions, endings):
        monkeypatch.setattr(module, "EPOCH_LAST", 3)
        monkeypatch.setattr(module, "EPOCH_MAX", 4)
    for seed in range(HISTORIES_AT_THE_LAST_EPOCH):
        History(seed).run()


def test_a_history_is_the_same_each_time() -> None:
    first, second = History(3), History(3)
    first.run()
    second.run()
    assert first.world.timeline.steps == second.world.timeline.steps
    assert len(first.world.truth.written) == len(second.world.truth.written)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "rule", "first"), plants.DRAWN, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_planted_fault_is_found(
    plant: plants.Plant, rule: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = set()
    for seed in range(first, first + SEARCHED):
        try:
            History(seed).run()
        except AssertionError as failure:
            found.add(str(failure))
            if rule in str(failure):
                return
    raise AssertionError(f"no history of {SEARCHED} shows {rule!r}, but {found}")
