"""Long work cut into short steps, so that whoever runs it can let others have their turn.

The work is a generator. Each step takes a millisecond or so of Python; what it yields says what it
needs next. A shell runs the steps in a thread (`node/runtime/aside.py`); tests and callers that
know that there is little to do run them at once.
"""

from collections.abc import Callable, Generator
from enum import Enum
from typing import TypeVar

_T = TypeVar("_T")


class Pace(Enum):
    """How work goes on after a step."""

    GO_ON = 1
    """It needs a pause only: it holds memory that it should soon give back."""
    NEXT = 2
    """Other work may be done before it: it holds nothing, and what follows is ordinary."""
    HEAVY = 3
    """Other work may be done before it, and what follows takes long or much memory."""


Steps = Generator[Pace, None, _T]


def at_once(steps: Steps[_T]) -> _T:
    """Do all of it now; what it comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def one_step(work: Callable[[], _T]) -> Steps[_T]:
    """Work that cannot be cut."""
    yield from ()
    return work()


def behind_all() -> Steps[None]:
    """Nothing but to wait until all work that is there by now is done, heavy work too."""
    yield Pace.HEAVY
