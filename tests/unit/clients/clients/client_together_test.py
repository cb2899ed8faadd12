"""Several plans as one: what they ask goes out together, and each has its own outcome."""

import pytest

from tidelog.clients.asking import Answered, Ask, Call, Pause, Plan, Ticket
from tidelog.clients.failures import TimedOutError
from tidelog.clients.together import results, together
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k03_metadata import API, MetadataRequest


def asks(times: int, name: str) -> Plan[str]:
    """A plan of so many questions, one after the other."""
    for _ in range(times):
        (outcome,) = yield [Call(0, Ask(API, MetadataRequest()))]
        assert isinstance(outcome, Answered)
    return name


def waits(wait_ns: int, name: str) -> Plan[str]:
    yield Pause(wait_ns, name)
    return (yield from asks(1, name))


def fails(error: Exception) -> Plan[str]:
    yield from asks(1, "")
    raise error


def rounds_of(plan: Plan[list[object]]) -> tuple[list[object], list[object]]:
    """What it found, and for each step the number of questions, or the length of a pause."""
    steps: list[object] = []
    found = drive_noting(plan, steps)
    return found, steps


def drive_noting(plan: Plan[list[object]], steps: list[object]) -> list[object]:
    try:
        step = next(plan)
        while True:
            if isinstance(step, Pause):
                steps.append(step)
                step = plan.send([])
            else:
                steps.append(len(step))
                step = plan.send([Answered(Ticket(n), 0, None) for n, _ in enumerate(step)])
    except StopIteration as done:
        found: list[object] = done.value
        return found


def test_questions_of_all_plans_go_out_at_once() -> None:
    found, steps = rounds_of(together([asks(1, "a"), asks(3, "b"), asks(2, "c")]))
    assert found == ["a", "b", "c"]
    assert steps == [3, 2, 1]


def test_who_waits_lets_the_others_ask_and_the_shortest_wait_counts() -> None:
    found, steps = rounds_of(together([waits(50, "a"), asks(2, "b"), waits(20, "c")]))
    assert found == ["a", "b", "c"]
    assert steps == [1, 1, Pause(20, "c"), 1, Pause(30, "a"), 1]


def test_a_plan_that_fails_does_not_stop_the_others() -> None:
    refused, late = Rejected(ErrorCode.PRODUCER_FENCED, "x"), TimedOutError("late")
    found, _ = rounds_of(together([fails(refused), asks(2, "b"), fails(late)]))
    assert found == [refused, "b", late]
    with pytest.raises(Rejected):
        results(found)


def test_a_bug_in_a_plan_is_not_kept_as_a_result() -> None:
    with pytest.raises(ValueError, match="a bug"):
        rounds_of(together([fails(ValueError("a bug")), asks(2, "b")]))


def test_without_plans_nothing_is_asked() -> None:
    assert rounds_of(together([])) == ([], [])
    assert results([]) == []
