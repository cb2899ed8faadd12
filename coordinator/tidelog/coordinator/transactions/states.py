"""The states of a transactional id, and what may become of what.

The numbers stand in the log, the names in what clients are told; both are Kafka's.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TxnState(IntEnum):
    """Where a transactional id stands."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Forgotten: in the log a record without a value."""
    PREPARE_EPOCH_FENCE = 7
    """Its producer is being locked out. Nothing is written in this state: it is passed through
    within the decision that aborts what was open."""

    @property
    def word(self) -> str:
        """As clients read it."""
        return _WORDS[self]

    @property
    def is_prepared(self) -> bool:
        """The outcome is certain, and markers are owed."""
        return self in {TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}

    @property
    def is_open(self) -> bool:
        """There is a transaction that has not come to its end."""
        return self is TxnState.ONGOING or self.is_prepared

    @property
    def is_complete(self) -> bool:
        """The markers are written."""
        return self in {TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}

    @property
    def is_idle(self) -> bool:
        """There is none: another may begin, or the id be forgotten."""
        return self is TxnState.EMPTY or self.is_complete


_WORDS: Final[Mapping[TxnState, str]] = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
    TxnState.DEAD: "Dead",
    TxnState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
STATES_BY_WORD: Final[Mapping[str, TxnState]] = {word: state for state, word in _WORDS.items()}

_S = TxnState
TRANSITIONS: Final[Mapping[TxnState, Mapping[TxnState, str]]] = {
    _S.EMPTY: {
        _S.EMPTY: "a producer begins with the id, or begins anew",
        _S.ONGOING: "the first partition, or group, is added",
        _S.PREPARE_ABORT: "the producer aborts what it has not begun (version 2)",
        _S.DEAD: "nobody used the id for long",
    },
    _S.ONGOING: {
        _S.ONGOING: "more partitions are added",
        _S.PREPARE_COMMIT: "the producer commits",
        _S.PREPARE_ABORT: "the producer aborts",
        _S.PREPARE_EPOCH_FENCE: "another producer begins with the id, or the time is up",
    },
    _S.PREPARE_EPOCH_FENCE: {_S.PREPARE_ABORT: "at once, under the next epoch"},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT: "the last marker is committed"},
    _S.PREPARE_ABORT: {_S.COMPLETE_ABORT: "the last marker is committed"},
    _S.COMPLETE_COMMIT: {
        _S.EMPTY: "a producer begins with the id",
        _S.ONGOING: "the next transaction's first partition, or group, is added",
        _S.PREPARE_ABORT: "the producer aborts what it has not begun (version 2)",
        _S.DEAD: "nobody used the id for long",
    },
    _S.COMPLETE_ABORT: {
        _S.EMPTY: "a producer begins with the id",
        _S.ONGOING: "the next transaction's first partition, or group, is added",
        _S.PREPARE_ABORT: "the producer aborts what it has not begun (version 2)",
        _S.DEAD: "nobody used the id for long",
    },
    _S.DEAD: {},
}
"""Each step, and why it is made. Who begins with a dead id begins with a new one."""


def enter(was: TxnState, to: TxnState) -> TxnState:
    """Make one step. One that the table does not have is a bug of ours."""
    assert to in TRANSITIONS[was], (was, to)
    return to


def states_table() -> str:
    """The table as the page on transactions shows it."""
    rows = [
        f"| {was.word} | {to.word} | {why} |"
        for was, steps in TRANSITIONS.items()
        for to, why in steps.items()
    ]
    return "\n".join(["| from | to | when |", "| --- | --- | --- |", *rows])
