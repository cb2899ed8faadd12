"""The states of a transactional id: what may become of what, walked as a table."""

from itertools import product
from pathlib import Path

import pytest

from tidelog.coordinator.transactions.states import (
    STATES_BY_WORD,
    TRANSITIONS,
    TxnState,
    enter,
    states_table,
)

# Rows: from; columns: to, in the order of the enum: Empty, Ongoing, PrepareCommit, PrepareAbort,
# CompleteCommit, CompleteAbort, Dead, PrepareEpochFence.
STEPS = {
    TxnState.EMPTY: "xx-x--x-",
    TxnState.ONGOING: "-xxx---x",
    TxnState.PREPARE_COMMIT: "----x---",
    TxnState.PREPARE_ABORT: "-----x--",
    TxnState.COMPLETE_COMMIT: "xx-x--x-",
    TxnState.COMPLETE_ABORT: "xx-x--x-",
    TxnState.DEAD: "--------",
    TxnState.PREPARE_EPOCH_FENCE: "---x----",
}


@pytest.mark.parametrize(("was", "to"), list(product(TxnState, TxnState)))
def test_an_id_goes_where_the_table_says_and_nowhere_else(was: TxnState, to: TxnState) -> None:
    if STEPS[was][list(TxnState).index(to)] == "x":
        assert enter(was, to) is to
    else:
        with pytest.raises(AssertionError):
            enter(was, to)


def test_every_state_has_its_row_and_can_be_reached() -> None:
    reached: set[TxnState] = set()
    for steps in TRANSITIONS.values():
        reached |= set(steps)
    assert set(TRANSITIONS) == set(TxnState) == {TxnState.EMPTY} | reached


def test_an_outcome_that_is_certain_comes_true_and_no_other() -> None:
    """Whoever is prepared has one way on, however often the coordinator dies."""
    assert set(TRANSITIONS[TxnState.PREPARE_COMMIT]) == {TxnState.COMPLETE_COMMIT}
    assert set(TRANSITIONS[TxnState.PREPARE_ABORT]) == {TxnState.COMPLETE_ABORT}


def test_states_are_told_apart_by_what_there_is_of_a_transaction() -> None:
    for state in TxnState:
        passing = state in {TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE}
        assert state.is_open + state.is_idle == (0 if passing else 1)
        assert not (state.is_prepared and not state.is_open)
        assert STATES_BY_WORD[state.word] is state


def test_the_table_of_the_page_has_a_row_for_each_step() -> None:
    rows = states_table().splitlines()
    assert len(rows) == 2 + sum(map(len, TRANSITIONS.values()))
    assert "| Ongoing | PrepareCommit | the producer commits |" in rows
    page = Path(__file__).resolve().parents[4] / "docs" / "transactions.md"
    assert states_table() in page.read_text(encoding="utf-8")
