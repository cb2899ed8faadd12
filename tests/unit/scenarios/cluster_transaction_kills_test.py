"""The kill matrix: at each step of a transaction, at each moment of that step, somebody dies whom
it needs. All of them are the real machines, brokers' request handlers and logs included.

Whoever dies: the transaction has one outcome, the same in each partition; each has its marker once;
the offsets of the group follow; nothing stays open; and a client that tries again hears no error.
"""

from itertools import product

import pytest

from harness.simulation.living import Life
from harness.simulation.transaction_kills import (
    DATA,
    MOMENTS,
    OFFSETS,
    STEPS,
    VICTIMS,
    Killing,
    markers_in,
)
from harness.simulation.transaction_scene import TransactionScene
from tidelog.coordinator.transactions.states import TxnState

TABLE = list(product(STEPS, MOMENTS, VICTIMS))
VERSIONS = (1, 2)
"""Of transactions: partitions are added before they are written to, or by that; the epoch stays the
same, or each end gives the next one."""
Variant = tuple[int, bool]
VARIANTS = list(product(VERSIONS, (True, False)))
TRIES_AGAIN = ((1, True), (2, False))
DIES_TOO = ((2, True), (1, False))
"""Version and outcome: a cell of the table takes one of each, its neighbours take the others. So
each cell meets both versions and both fates of the client; with `--nightly` it meets all there
are."""
TIMEOUT_MS = 1_500
OFFSET = 5


@pytest.mark.slow
@pytest.mark.parametrize(("step", "moment", "victim"), TABLE)
def test_a_death_makes_no_difference_to_a_client_that_tries_again(
    step: str, moment: str, victim: str, *, nightly: bool
) -> None:
    for version, committed in VARIANTS if nightly else mine(TRIES_AGAIN, step, moment, victim):
        scene = TransactionScene()
        client = scene.begun(version=version)
        killing = Killing(scene, client, victim=victim, dies=False)
        killing.at(step, moment, client)
        client.finish(client.transaction(DATA, committed=committed, offset=OFFSET))
        client.finish(client.transaction(DATA))
        scene.heal()
        assert killing.is_done, "the moment never came"
        assert [one.told for one in scene.truth.written.values()] == [committed, True]
        assert [one.epoch for one in scene.truth.written.values()] == [0, version - 1]
        assert {code.name for _, code in client.answers} == {"NONE"}
        assert [markers_in(scene, key) for key in DATA] == [[committed, True]] * 2
        assert markers_in(scene, OFFSETS) == [committed]
        assert scene.state() is TxnState.COMPLETE_COMMIT
        assert committed_offset(scene) == (OFFSET if committed else -1)
        scene.check()


@pytest.mark.slow
@pytest.mark.parametrize(("step", "moment", "victim"), TABLE)
def test_a_transaction_whose_client_dies_too_has_one_of_two_ends(
    step: str, moment: str, victim: str, *, nightly: bool
) -> None:
    for version, committed in VARIANTS if nightly else mine(DIES_TOO, step, moment, victim):
        scene = TransactionScene()
        client = scene.begun(timeout_ms=TIMEOUT_MS, version=version)
        killing = Killing(scene, client, victim=victim, dies=True)
        killing.at(step, moment, client)
        client.finish(client.transaction(DATA, committed=committed, offset=OFFSET))
        scene.cluster.run(TIMEOUT_MS + 1_000)
        scene.heal()
        assert killing.is_done, "the moment never came"
        outcome = scene.state()
        assert outcome in {TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT, TxnState.EMPTY}
        is_committed = outcome is TxnState.COMPLETE_COMMIT
        assert committed or not is_committed
        for key in (*DATA, OFFSETS):
            assert markers_in(scene, key) in ([], [is_committed])
        assert committed_offset(scene) == (OFFSET if is_committed else -1)
        scene.check()


def mine(pair: tuple[Variant, Variant], step: str, moment: str, victim: str) -> tuple[Variant]:
    """Of the two, as the colours of a chessboard."""
    at = STEPS.index(step) + MOMENTS.index(moment) + [*VICTIMS].index(victim)
    return (pair[at % 2],)


def committed_offset(scene: TransactionScene) -> int:
    reader, found = scene.client("reader"), list[int]()

    def reads() -> Life:
        found.append((yield from reader.committed_offset()))

    reader.finish(reads())
    return found[0]
