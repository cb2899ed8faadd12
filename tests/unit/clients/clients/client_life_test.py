"""What a transactional producer may do next, as a table, and what each error leaves of that."""

from collections.abc import Callable

import pytest

from harness.suite.tidy_checks import ROOT
from tidelog.clients.failures import AbortableError, FatalError
from tidelog.clients.producer.life import (
    TRANSITIONS,
    Life,
    Phase,
    Step,
    breaks_the_producer,
)
from tidelog.wire.errors import ErrorCode as Code

COORDINATOR = set(Step) - {Step.PRODUCE}
EVERY = set(Step)
FATAL_IN = {
    Code.PRODUCER_FENCED: EVERY,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: EVERY,
    Code.CLUSTER_AUTHORIZATION_FAILED: EVERY,
    Code.UNSUPPORTED_VERSION: EVERY,
    Code.INVALID_PRODUCER_EPOCH: COORDINATOR,
    Code.INVALID_TXN_STATE: COORDINATOR - {Step.COMMIT},
    Code.INVALID_PRODUCER_ID_MAPPING: {Step.PRODUCE},
    Code.TRANSACTION_ABORTABLE: set(),
    Code.TOPIC_AUTHORIZATION_FAILED: set(),
    Code.GROUP_AUTHORIZATION_FAILED: set(),
    Code.OPERATION_NOT_ATTEMPTED: set(),
    Code.UNKNOWN_PRODUCER_ID: set(),
    Code.UNKNOWN_MEMBER_ID: set(),
    Code.ILLEGAL_GENERATION: set(),
    Code.FENCED_INSTANCE_ID: set(),
    Code.STALE_MEMBER_EPOCH: set(),
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: COORDINATOR - {Step.ADD_PARTITIONS},
    Code.MESSAGE_TOO_LARGE: COORDINATOR - {Step.ADD_PARTITIONS},
    Code.INVALID_RECORD: COORDINATOR - {Step.ADD_PARTITIONS},
    Code.UNKNOWN_SERVER_ERROR: COORDINATOR - {Step.ADD_PARTITIONS},
}
"""Where an error ends the producer, and not the transaction alone; as in Kafka's own."""


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("code", FATAL_IN)
def test_an_error_ends_the_transaction_or_the_producer(code: Code, step: Step) -> None:
    assert breaks_the_producer(step, code) is (step in FATAL_IN[code])


@pytest.mark.parametrize("step", Step)
def test_silence_ends_the_transaction_alone(step: Step) -> None:
    assert not breaks_the_producer(step, None)


def in_phase(phase: Phase) -> Life:
    life = Life()
    if phase is Phase.NEW:
        return life
    life.ready()
    if phase is Phase.READY:
        return life
    life.begin()
    match phase:
        case Phase.COMMITTING:
            life.commit()
        case Phase.ABORTING:
            life.abort()
        case Phase.BROKEN:
            life.fail(Step.PRODUCE, Code.INVALID_RECORD, "t-0")
        case Phase.DEAD:
            life.fail(Step.PRODUCE, Code.PRODUCER_FENCED, "t-0")
        case _:
            pass
    assert life.phase is phase
    return life


MOVES: dict[str, Callable[[Life], object]] = {
    "ready": Life.ready,
    "begin": Life.begin,
    "commit": Life.commit,
    "abort": Life.abort,
    "broken": lambda life: life.fail(Step.PRODUCE, Code.INVALID_RECORD, ""),
    "dead": lambda life: life.fail(Step.PRODUCE, Code.PRODUCER_FENCED, ""),
}


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_goes_where_the_table_says_and_nowhere_else(phase: Phase) -> None:
    reached = set()
    for move in MOVES.values():
        life = in_phase(phase)
        try:
            move(life)
        except (AssertionError, RuntimeError, AbortableError, FatalError):
            assert life.phase is phase
            continue
        reached.add(life.phase)
    assert reached - {phase} == TRANSITIONS[phase]


def test_the_readme_shows_the_table() -> None:
    text = (ROOT / "clients/tidelog/clients/producer/README.md").read_text(encoding="utf-8")
    for phase, following in TRANSITIONS.items():
        names = ", ".join(one.value for one in Phase if one in following) or "nothing"
        assert f"| {phase.value} | {names} |" in text


def test_what_broke_a_transaction_is_told_until_it_is_aborted() -> None:
    life = in_phase(Phase.BROKEN)
    for call in (life.check_open, life.commit, life.begin, life.check_unbroken):
        with pytest.raises(AbortableError, match=r"must be aborted \(INVALID_RECORD: t-0\)"):
            call()
    life.abort()
    life.ready()
    life.check_unbroken()
    life.begin()


def test_what_ended_a_producer_is_told_for_ever() -> None:
    life = in_phase(Phase.DEAD)
    for call in (life.check_open, life.commit, life.begin, life.abort):
        with pytest.raises(FatalError, match="another producer has taken the transactional id"):
            call()


def test_calls_in_a_wrong_order_are_a_bug_of_the_caller() -> None:
    for phase in (Phase.NEW, Phase.READY):
        life = in_phase(phase)
        for call in (life.check_open, life.commit, life.abort):
            with pytest.raises(RuntimeError, match=f"the producer is {phase.value}, not open"):
                call()
    with pytest.raises(RuntimeError, match="the producer is open, not ready"):
        in_phase(Phase.OPEN).begin()


def test_a_commit_that_nobody_answered_can_only_be_made_again() -> None:
    life = in_phase(Phase.COMMITTING)
    life.commit()
    with pytest.raises(RuntimeError, match="committing, not open or broken or aborting"):
        life.abort()


def test_who_is_not_taken_at_all_says_so() -> None:
    life = Life()
    error = life.fail(Step.INIT, Code.INVALID_TRANSACTION_TIMEOUT, "x")
    assert isinstance(error, FatalError)
    assert str(error) == (
        "the cluster does not take this producer (INVALID_TRANSACTION_TIMEOUT: x)"
    )
    assert in_phase(Phase.OPEN).fail(Step.PRODUCE, None, "late").said == "late"
    assert in_phase(Phase.OPEN).fail(Step.END, Code.UNKNOWN_SERVER_ERROR, "").said == (
        "UNKNOWN_SERVER_ERROR"
    )
