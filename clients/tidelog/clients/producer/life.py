"""What a transactional producer may do next, and what an error leaves of that.

Of an error there are three kinds. What passes is tried again and never seen here. What breaks the
transaction leaves one thing to do: abort it, and begin the next. What breaks the producer leaves
nothing: another has its id, or nobody knows any more what it was. What it left open is aborted by
whoever has the id now, or when its time is over.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from tidelog.clients.failures import AbortableError, FatalError
from tidelog.wire.errors import ErrorCode


class Phase(Enum):
    """Between two calls."""

    NEW = "new"
    """Without a producer id yet."""
    READY = "ready"
    """No transaction is open."""
    OPEN = "open"
    BROKEN = "broken"
    """Open, and it cannot be committed any more."""
    COMMITTING = "committing"
    """Whether it is decided nobody has said yet: it can only be committed again."""
    ABORTING = "aborting"
    DEAD = "dead"
    """Nothing can be done any more."""


TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.NEW: frozenset({Phase.READY, Phase.DEAD}),
    Phase.READY: frozenset({Phase.OPEN}),
    Phase.OPEN: frozenset({Phase.COMMITTING, Phase.ABORTING, Phase.BROKEN, Phase.DEAD}),
    Phase.BROKEN: frozenset({Phase.ABORTING, Phase.DEAD}),
    Phase.COMMITTING: frozenset({Phase.READY, Phase.BROKEN, Phase.DEAD}),
    Phase.ABORTING: frozenset({Phase.READY, Phase.BROKEN, Phase.DEAD}),
    Phase.DEAD: frozenset(),
}


class Step(Enum):
    """What was asked of the cluster when it said no."""

    INIT = auto()
    ADD_PARTITIONS = auto()
    PRODUCE = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()
    COMMIT = auto()
    """Where each end takes an epoch: an abort says what is so, and gives the next one."""


_BREAKS_THE_PRODUCER: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_BREAKS_THE_TRANSACTION: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        # Of a member whose group went on without it: what it read another will read again.
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_OF_A_FENCED_ONE: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FENCED: Final = (
    "another producer has taken the transactional id over, or the transaction was open for longer "
    "than its time-out"
)
_BROKEN: Final = "the transaction must be aborted"
_TOO_LATE: Final = "the transaction was open for longer than its time-out, and must be aborted"
_OPEN_TO_A_SECOND_LOOK: Final = frozenset({Step.PRODUCE, Step.ADD_PARTITIONS})
"""A partition's leader knows less than the coordinator, who says at the abort what is really so."""


def breaks_the_producer(step: Step, code: ErrorCode | None) -> bool:
    """Whether nothing is left to do; else the transaction can be aborted. No code: nobody answered
    in time."""
    if code is None or code in _BREAKS_THE_TRANSACTION:
        return False
    if code in _BREAKS_THE_PRODUCER:
        return True
    match code:
        case ErrorCode.INVALID_TXN_STATE if step is Step.COMMIT:
            return False  # its time was up
        case ErrorCode.INVALID_PRODUCER_EPOCH | ErrorCode.INVALID_TXN_STATE:
            return step is not Step.PRODUCE
        case ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return step is Step.PRODUCE
        case _:
            return step not in _OPEN_TO_A_SECOND_LOOK


class Life:
    """Invariant: `error` is set in BROKEN and DEAD, and tells why."""

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.error: AbortableError | FatalError | None = None

    def ready(self) -> None:
        """It has its id; or what it had begun is ended."""
        self._enter(Phase.READY)
        self.error = None

    def begin(self) -> None:
        self._check(Phase.READY)
        self._enter(Phase.OPEN)

    def check_open(self) -> None:
        """Before anything becomes part of the transaction."""
        self._check(Phase.OPEN)

    def check_unbroken(self) -> None:
        """Nothing that was open has failed."""
        if self.error is not None:
            raise self.error

    def commit(self) -> None:
        """Again where nobody answered the last time."""
        self._check(Phase.OPEN, Phase.COMMITTING)
        if self.phase is not Phase.COMMITTING:
            self._enter(Phase.COMMITTING)

    def abort(self) -> None:
        self._check(Phase.OPEN, Phase.BROKEN, Phase.ABORTING)
        if self.phase is not Phase.ABORTING:
            self._enter(Phase.ABORTING)

    def fail(self, step: Step, code: ErrorCode | None, detail: str) -> AbortableError | FatalError:
        """What the cluster said ends the transaction, or the producer; to be raised."""
        if self.phase is Phase.NEW:
            self.error = FatalError("the cluster does not take this producer", code, detail)
            self._enter(Phase.DEAD)
        elif breaks_the_producer(step, code):
            why = _FENCED if code in _OF_A_FENCED_ONE else "this producer can go on no more"
            self.error = FatalError(why, code, detail)
            self._enter(Phase.DEAD)
        else:
            is_late = step is Step.COMMIT and code is ErrorCode.INVALID_TXN_STATE
            self.error = AbortableError(_TOO_LATE if is_late else _BROKEN, code, detail)
            self._enter(Phase.BROKEN)
        return self.error

    def _check(self, *phases: Phase) -> None:
        """The error that ended what was open where there is one; a wrong order of calls is a bug
        of the caller."""
        if self.phase in phases:
            return
        self.check_unbroken()
        allowed = " or ".join(one.value for one in phases)
        raise RuntimeError(f"the producer is {self.phase.value}, not {allowed}")

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], (self.phase, phase)
        self.phase = phase
