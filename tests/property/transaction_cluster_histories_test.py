"""Transactions in whole clusters under drawn faults: what clients were told, what readers got and
what the logs hold can all be true.

A failure names its seed: `TransactionHistory(seed).run()` is the same history again, step by step.
"""

import hashlib
from collections.abc import Callable
from random import Random

import pytest

from harness import cluster_transaction_plants as plants
from harness import transaction_plants
from harness.simulated_transaction_histories import TransactionHistory
from tidelog.kernel.ids import BrokerId

HISTORIES = 10
HISTORIES_NIGHTLY = 2_000
SEARCHED = 40
FAILED_BEFORE = (62_000_050,)  # a lossy election of a replica of an empty log
PLANTS = (
    (plants.verification_off, 14),
    (transaction_plants.answer_before_commit, 0),
    (transaction_plants.prepared_only_in_memory, 0),
    (transaction_plants.epoch_not_bumped, 17),
)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_whatever_happens_a_transaction_is_all_or_nothing(*, nightly: bool) -> None:
    histories, first = HISTORIES, 0
    if nightly:
        histories, first = HISTORIES_NIGHTLY, Random().randrange(1 << 40)
    for seed in (*FAILED_BEFORE, *range(first, first + histories)):
        try:
            TransactionHistory(seed).run()
        except Exception as failure:
            raise AssertionError(f"TransactionHistory({seed}).run()") from failure


@pytest.mark.slow
def test_a_history_is_the_same_each_time() -> None:
    assert _trace(1) == _trace(1)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "first"), PLANTS)
def test_a_fault_would_be_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], first: int
) -> None:
    """By one of the histories from there on; the first does now."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _run(range(first, first + SEARCHED))


def _run(seeds: range) -> None:
    for seed in seeds:
        TransactionHistory(seed).run()


def _trace(seed: int) -> str:
    history, trace = TransactionHistory(seed), hashlib.sha256()

    def look(sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        trace.update(repr((history.cluster.now, sender, to, parts)).encode())
        return True

    history.cluster.look_at_message = look
    history.run()
    return trace.hexdigest()
