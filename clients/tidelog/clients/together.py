"""Several plans as one: their questions go out at the same time."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from tidelog.clients.asking import Call, Outcome, Pause, Plan, Step
from tidelog.clients.failures import ClientError
from tidelog.wire.errors import Rejected

ResultT = TypeVar("ResultT")

Failure = ClientError | Rejected


def together(plans: Sequence[Plan[ResultT]]) -> Plan[list[ResultT | Failure]]:
    """What each plan found, in their order. A plan that fails does not stop the others: its error
    stands where its result would be."""
    lanes = [_Lane(plan) for plan in plans]
    while waiting := [lane for lane in lanes if lane.step is not None]:
        asking = [lane for lane in waiting if not isinstance(lane.step, Pause)]
        if not asking:
            yield from _pause(waiting)
            continue
        outcomes = iter((yield [call for lane in asking for call in lane.calls]))
        for lane in asking:
            lane.answer(outcomes)
    return [lane.result for lane in lanes]


def results(found: Sequence[ResultT | Failure]) -> list[ResultT]:
    """What `together` found, where all of it is needed: raises the first error instead."""
    good: list[ResultT] = []
    for one in found:
        if isinstance(one, ClientError | Rejected):
            raise one
        good.append(one)
    return good


class _Lane(Generic[ResultT]):
    """One plan. `step` is what it wants next, None once `result` is there."""

    def __init__(self, plan: Plan[ResultT]) -> None:
        self._plan = plan
        self.result: ResultT | Failure
        self.step: Step | None = None
        self._advance(None)

    @property
    def calls(self) -> list[Call]:
        assert isinstance(self.step, list)
        return self.step

    @property
    def wait(self) -> Pause:
        assert isinstance(self.step, Pause)
        return self.step

    def answer(self, outcomes: Iterator[Outcome]) -> None:
        """Take as many outcomes as it has asked questions."""
        self._advance([next(outcomes) for _ in self.calls])

    def pause(self, waited_ns: int) -> None:
        """Go on if this was all of its wait."""
        left = self.wait.wait_ns - waited_ns
        if left > 0:
            self.step = Pause(left, self.wait.because)
        else:
            self._advance([])

    def _advance(self, outcomes: list[Outcome] | None) -> None:
        try:
            self.step = next(self._plan) if outcomes is None else self._plan.send(outcomes)
        except StopIteration as done:
            self.step, self.result = None, done.value
        except (ClientError, Rejected) as error:
            self.step, self.result = None, error


def _pause(waiting: Sequence[_Lane[ResultT]]) -> Plan[None]:
    """As long as the shortest of their waits; the others have so much less to wait then."""
    shortest = min((lane.wait for lane in waiting), key=lambda one: one.wait_ns)
    yield shortest
    for lane in waiting:
        lane.pause(shortest.wait_ns)
