"""Lines of one function in the making, and the constants that they name."""

from collections.abc import Iterable
from struct import Struct
from typing import Any


class Source:
    """Python text with its own indentation; `with source.block("if n:"):` opens a block."""

    def __init__(self, head: str, constants: dict[str, Any]) -> None:
        self._lines = [head]
        self._depth = 1
        self.constants = dict(constants)

    def emit(self, *lines: str) -> None:
        self._lines.extend(" " * self._depth + line for line in lines)

    def block(self, head: str, lines: Iterable[str] = ()) -> "Source":
        self.emit(head)
        self._depth += 1
        self.emit(*lines)
        return self

    def __enter__(self) -> None:
        """The block is open since `block`."""

    def __exit__(self, *failure: object) -> None:
        self._depth -= 1

    def constant(self, name: str, value: object) -> str:
        """Let the function use a value by this name. Equal texts must mean equal functions."""
        assert self.constants.setdefault(name, value) == value, name
        return name

    def text(self) -> str:
        return "\n".join(self._lines)


_STRUCTS: dict[str, Struct] = {}


def struct_of(code: str) -> Struct:
    """The one struct of a format: functions that look alike share it."""
    made = _STRUCTS.get(code)
    if made is None:
        made = _STRUCTS[code] = Struct(code)
    return made


def struct_name(code: str) -> str:
    """A name for the struct of a format.

    >>> struct_name(">h?x")
    'struct_hzx'
    """
    return "struct_" + code.removeprefix(">").replace("?", "z")
