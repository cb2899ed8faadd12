"""How much memory a message takes that was read from a frame, about and quickly.

Few of its lists are walked: those whose elements have lists themselves. Of all others the length
says it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidelog.kernel.limits import ELEMENT_BYTES
from tidelog.kernel.steps import Pace, Steps
from tidelog.wire.primitives import Primitive
from tidelog.wire.schema import Array, WireType, rows_of

NUMBER_BYTES: Final = 40
"""Of a number in a list: an object of 32 bytes, and its place."""
_LISTS_PER_STEP: Final = 10_000

_Lists = list[tuple[str, WireType]]
_LISTS: dict[type, _Lists] = {}


def memory_of(message: object) -> Steps[int]:
    """The bytes that the elements of a message's lists take."""
    total = 0
    for number, (found, element) in enumerate(_all_lists(message), 1):
        total += len(found) * _bytes_of(element)
        if not number % _LISTS_PER_STEP:
            yield Pace.GO_ON
    return total


def _all_lists(message: object) -> Iterator[tuple[Sequence[Any], WireType]]:
    """Each list of a message and of the structs in its lists, and what it is of."""
    left = [message]
    while left:
        one = left.pop()
        for name, element in _lists(type(one)):
            found = getattr(one, name) or ()
            yield found, element
            if isinstance(element, type) and _lists(element):
                left.extend(found)


def _lists(cls: type) -> _Lists:
    """The fields of a class that are lists, and what these are of."""
    lists = _LISTS.get(cls)
    if lists is None:
        fields = [(row.name, row.type) for row in rows_of(cls)]
        lists = _LISTS[cls] = [
            (name, kind.element) for name, kind in fields if isinstance(kind, Array)
        ]
    return lists


def _bytes_of(element: WireType) -> int:
    is_number = isinstance(element, Primitive) and isinstance(element.zero, int)
    return NUMBER_BYTES if is_number else ELEMENT_BYTES
