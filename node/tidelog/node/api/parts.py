"""Requests that may take long: done in parts, with other clients' requests in between.

A handler is written as a generator. What it yields says what it waits for: None for its next turn
on the loop, ANYWAY for that also if the client is gone by then, work that is done in a thread, or
somebody to ask. It is sent the work's result, or what was answered. What it returns is its answer.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import Steps
from tidelog.node.api.call import Call
from tidelog.node.api.faults import Fault, faults_caught
from tidelog.node.api.registry import NO_ANSWER
from tidelog.node.net.client import CloseConnectionError

_T = TypeVar("_T")


class Turns(Enum):
    """Which turn on the loop a request waits for."""

    ANYWAY = 0
    """The next one, also if its client is gone by then. Without it the rest is not done."""


class Asking(NamedTuple):
    """Somebody else is asked. The rest is done also if the client is gone when they answer."""

    begin: Callable[[Callable[[Any], None]], None]
    """Asks them; what it is given takes the answer, once."""


ANYWAY: Final = Turns.ANYWAY
Wanted = Steps[Any] | Turns | Asking | None
Parting = Generator[Wanted, Any, _T]
"""Some of the parts of a request."""
Parts = Parting[object]


class Turn:
    """How much of a request is done before other clients have their turn."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = limits.ROWS_PER_STEP

    def is_over(self, cost: int = 1) -> bool:
        """Asked before each row; where it is, the next turn begins."""
        is_over = self._left <= 0
        if is_over:
            self._left = limits.ROWS_PER_STEP
        self._left -= cost
        return is_over

    def take(self, cost: int) -> None:
        """So many rows more were done in this turn, as turned out on the way."""
        self._left -= cost


def in_turns(rows: Iterable[_T]) -> Iterator[list[_T]]:
    """As many rows at a time as are done before other clients have their turn."""
    rest = iter(rows)
    while some := list(islice(rest, limits.ROWS_PER_STEP)):
        yield some


def each_once(names: Iterable[str], turn: Turn) -> Parting[list[str]]:
    """The names in their order, without those that stood there before."""
    once: dict[str, None] = {}
    for name in names:
        if turn.is_over(cost_of_name(name)):
            yield None
        once[name] = None
    return list(once)


def cost_of_name(name: str) -> int:
    """In rows, of finding the partition of a group or a transactional id: its name is hashed in
    Python, character by character, and may be long.
    """
    return 1 + len(name) // 64


def in_parts(call: Call, parts: Parts) -> object | None:
    """What a handler returns: the answer where the first part gives it, as nearly always."""
    try:
        wanted = next(parts)
    except StopIteration as end:
        answer: object | None = end.value
        return answer
    call.hold()
    _wait(call, parts, wanted)
    return None


def _wait(call: Call, parts: Parts, wanted: Wanted) -> None:
    then = call.later(partial(_go_on, call, parts, wanted))
    if wanted is None or isinstance(wanted, Turns):
        call.broker.later(lambda now: then(now, None))
    elif isinstance(wanted, Asking):
        wanted.begin(lambda answer: call.broker.later(lambda now: then(now, answer)))
    else:
        call.broker.aside(faults_caught(wanted), then)


def _go_on(call: Call, parts: Parts, waited: Wanted, now: Instant, result: object) -> None:
    if call.abandoned and waited is not ANYWAY and not isinstance(waited, Asking):
        parts.close()
        return
    call.now = now
    go_on(call, parts, result)


def go_on(call: Call, parts: Parts, result: object = None) -> None:
    """Do the next part of a request that is held, outside of the turn in which it came."""
    try:
        wanted = parts.throw(result.error) if isinstance(result, Fault) else parts.send(result)
    except StopIteration as end:
        _end(call, end.value)
    except CloseConnectionError as error:
        call.client.close(str(error))
    else:
        _wait(call, parts, wanted)


def _end(call: Call, answer: object | None) -> None:
    """None where the handler answers later."""
    call.release()
    if answer is NO_ANSWER:
        call.no_answer()
    elif answer is not None:
        call.answer(answer)
