"""Drawn histories of batches, words and markers that come late: no transaction is left hanging.

(KAFKA-14402) Each fault that the gate is there against is put back once, and found.
"""

from pathlib import Path

import pytest

from harness.faults.planting import Plant, Planting
from harness.machines.transaction_bench import log_of
from harness.machines.transaction_gate import ADDED, ASKED, PARTITIONS, Gate
from harness.suite.budgets import Histories
from tidelog.node.api import transaction_gate
from tidelog.node.log.verifications import Verifications

STEPS = 500


def live(directory: Path, seed: int, version: int) -> Gate:
    gate = Gate(directory / str(seed), seed, version)
    for _ in range(STEPS):
        gate.step()
    return gate


@pytest.mark.parametrize("version", [ASKED, ADDED])
def test_what_is_open_in_a_log_somebody_will_end(
    tmp_path: Path, histories: Histories, version: int
) -> None:
    written = taken = heard = 0

    def history(seed: int) -> None:
        nonlocal written, taken, heard
        gate = live(tmp_path, seed, version)
        written += sum(log_of(gate.bench, index=index).end for index in range(PARTITIONS))
        taken, heard = taken + gate.taken, heard + gate.heard
        gate.bench.close()

    ran = histories.run(history)
    assert written > ran * STEPS // 100
    assert taken > ran * STEPS // 20
    assert version is ADDED or heard > ran * STEPS // 50


def _skipped(patch: pytest.MonkeyPatch) -> None:
    """Nobody is asked."""
    patch.setattr(transaction_gate, "is_gated", lambda *_: False)


def _outlives(patch: pytest.MonkeyPatch) -> None:
    """A word stays good when a marker comes."""
    patch.setattr(Verifications, "end", lambda *_: None)


def _is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Whoever has asked may append."""
    patch.setattr(Verifications, "holds", lambda *_: True)


def _comes_behind_the_marker(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator says of itself is not in order with its markers."""
    patch.setattr(Gate, "_hear_all", lambda *_: None)


def _is_of_any_leader(patch: pytest.MonkeyPatch) -> None:
    """What it said to an earlier leader counts for this one."""
    patch.setattr(
        Verifications,
        "admitted",
        lambda self, producer, epoch, _leader: self._by_producer.get(producer, {}).get(epoch),
    )


@pytest.mark.parametrize(
    ("plant", "version"),
    [
        (_skipped, ASKED),
        (_outlives, ASKED),
        (_is_not_looked_at, ASKED),
        (_comes_behind_the_marker, ASKED),
        (_is_of_any_leader, ASKED),
        (_skipped, ADDED),
    ],
)
def test_a_fault_is_found(
    tmp_path_factory: pytest.TempPathFactory, planting: Planting, plant: Plant, version: int
) -> None:
    """Where each end takes an epoch, the log itself tells the past by that."""
    planting.is_found(
        plant,
        lambda seed: live(tmp_path_factory.mktemp("gate"), seed, version),
        match="hangs",
    )
