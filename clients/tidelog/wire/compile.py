"""Message rows -> straight-line read and write functions, made at the first use of a version.

`reader(cls, version, flexible=...)` and its twin `writer` give the functions; who asks twice gets
the same one. Versions that look alike on the wire share one function.
"""

from collections.abc import Callable
from typing import Any

from tidelog.kernel.limits import MESSAGE_ELEMENTS_MAX
from tidelog.wire.compile_read import read_source
from tidelog.wire.compile_write import write_source
from tidelog.wire.primitives import Records
from tidelog.wire.source import Source

Piece = bytes | bytearray | memoryview | Records
"""A part of a frame on its way out."""

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""The frame and a position in it -> the message and the position behind it, or WireError."""

Writer = Callable[[Any, bytearray, list[Piece]], bytearray]
"""A message, the bytes so far, and the finished pieces before them -> the last bytes.

Records close the bytes so far: they and the records go to the pieces, and new bytes begin.
"""

_readers: dict[tuple[type, int, bool, int, bool], Reader] = {}
_writers: dict[tuple[type, int, bool, int | None], Writer] = {}
_made: dict[tuple[type, str], Any] = {}


def reader(
    cls: type,
    version: int,
    *,
    flexible: bool,
    elements_max: int = MESSAGE_ELEMENTS_MAX,
    counts_numbers: bool = False,
) -> Reader:
    """The function that reads a message of this class as this version has it."""
    key = (cls, version, flexible, elements_max, counts_numbers)
    made = _readers.get(key)
    if made is None:
        source = read_source(
            cls,
            version,
            flexible=flexible,
            elements_max=elements_max,
            counts_numbers=counts_numbers,
        )
        made = _readers[key] = _make(cls, source)
    return made


def writer(cls: type, version: int, *, flexible: bool, elements_max: int | None = None) -> Writer:
    """The function that writes a message of this class as this version has it."""
    key = (cls, version, flexible, elements_max)
    made = _writers.get(key)
    if made is None:
        source = write_source(cls, version, flexible=flexible, elements_max=elements_max)
        made = _writers[key] = _make(cls, source)
    return made


def _make(cls: type, source: Source) -> Any:  # noqa: ANN401 -- a reader or a writer
    text = source.text()
    made = _made.get((cls, text))
    if made is None:
        code = compile(text, f"<{cls.__name__}>", "exec")
        exec(code, source.constants)  # noqa: S102 -- of our own rows only
        made = _made[(cls, text)] = source.constants["made"]
    return made
