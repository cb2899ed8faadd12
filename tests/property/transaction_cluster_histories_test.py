"""Transactions in whole clusters under drawn faults: what clients were told, what readers got and
what the logs hold can all be true.

A failure names its seed: `TransactionHistory(seed).run()` is the same history again, step by step.
"""

import hashlib
from collections.abc import Mapping

import pytest

from harness.faults import transaction_plants as plants
from harness.faults.planting import Plant, Planting
from harness.simulation.transaction_histories import TransactionHistory
from harness.suite.budgets import Histories
from tidelog.coordinator.transactions import decisions, endings
from tidelog.kernel.ids import BrokerId

PLANTS: Mapping[Plant, str] = {
    plants.verification_off: "T",
    plants.answer_before_commit: "T",
    plants.prepared_only_in_memory: "T",
    plants.epoch_not_bumped: "T",
    plants.end_takes_no_epoch: "T3",
    plants.marker_of_the_epoch_before: "T1",
    plants.late_request_is_taken: "T",
}
"""Each with the rule by which it must be found."""


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_whatever_happens_a_transaction_is_all_or_nothing(histories: Histories) -> None:
    histories.run(lambda seed: TransactionHistory(seed).run())


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_nor_does_it_matter_that_epochs_are_used_up(
    monkeypatch: pytest.MonkeyPatch, histories: Histories
) -> None:
    """A producer gets another id after four epochs, and not after 32,767."""
    for module in (decisions, endings):
        monkeypatch.setattr(module, "EPOCH_LAST", 3)
        monkeypatch.setattr(module, "EPOCH_MAX", 4)
    histories.run(lambda seed: TransactionHistory(seed).run())


def test_a_client_that_names_a_topic_its_broker_has_yet_to_hear_of_asks_again() -> None:
    TransactionHistory(64_000_122).run()


@pytest.mark.slow
def test_a_history_is_the_same_each_time() -> None:
    assert _trace(1) == _trace(1)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)
def test_a_fault_would_be_found(plant: Plant, planting: Planting) -> None:
    planting.is_found(plant, lambda seed: TransactionHistory(seed).run(), match=f"^{PLANTS[plant]}")


def _trace(seed: int) -> str:
    history, trace = TransactionHistory(seed), hashlib.sha256()

    def look(sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        trace.update(repr((history.cluster.now, sender, to, parts)).encode())
        return True

    history.cluster.look_at_message = look
    history.run()
    return trace.hexdigest()
