"""Things in their order, put together until they are large enough."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_ThingT = TypeVar("_ThingT")


def grouped(
    things: Iterable[_ThingT], size_of: Callable[[_ThingT], int], *, size_min: int
) -> Iterator[list[_ThingT]]:
    """Only the last group may have less.

    >>> list(grouped("abcde", lambda _: 1, size_min=2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    chosen: list[_ThingT] = []
    size = 0
    for one in things:
        chosen.append(one)
        size += size_of(one)
        if size >= size_min:
            yield chosen
            chosen, size = [], 0
    if chosen:
        yield chosen
