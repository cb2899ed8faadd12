"""Drawn histories of batches, words and markers that come late: no transaction is left hanging.

(KAFKA-14402) Each fault that the gate is there against is put back once, and found.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.transaction_bench import log_of
from harness.transaction_gate import ADDED, ASKED, PARTITIONS, Gate
from tidelog.node.api import transaction_gate
from tidelog.node.log.verifications import Verifications

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 30
STEPS = 500


def live(directory: Path, seed: int, version: int) -> Gate:
    gate = Gate(directory / str(seed), seed, version)
    for _ in range(STEPS):
        gate.step()
    return gate


@pytest.mark.parametrize("version", [ASKED, ADDED])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_open_in_a_log_somebody_will_end(tmp_path: Path, seed: int, version: int) -> None:
    gate = live(tmp_path, seed, version)
    assert sum(log_of(gate.bench, index=index).end for index in range(PARTITIONS)) > STEPS // 100
    assert gate.taken > STEPS // 20
    assert version is ADDED or gate.heard > STEPS // 50


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant, version: int
) -> None:
    """Where each end takes an epoch, the log itself tells the past by that."""
    plant(monkeypatch)
    assert any(_hangs(tmp_path, seed, version) for seed in range(SEEDS))


def _hangs(directory: Path, seed: int, version: int) -> bool:
    try:
        live(directory, seed, version)
    except AssertionError as error:
        return "hangs" in str(error)
    return False
