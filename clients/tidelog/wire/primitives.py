"""The wire's types, and the few functions that the compiled readers and writers call.

A fixed-size type is a format letter of `struct`: runs of them become one `Struct`. The others
start with a length: an int16 or int32 before the flexible versions, an unsigned varint of
length + 1 in them; null is -1 and 0.
"""

from struct import Struct
from typing import NoReturn, Protocol

from tidelog.kernel.limits import REQUEST_BYTES_MAX, STRING_BYTES_MAX, TAGGED_FIELDS_MAX
from tidelog.wire.errors import TooWideError, WireError


class Records(Protocol):
    """Record batches on their way out: bytes, a view, or a slice of a file for sendfile."""

    def __len__(self) -> int: ...


class Primitive:
    """One type that is no struct and no array."""

    __slots__ = ("code", "name", "size", "zero")

    def __init__(self, name: str, code: str, size: int, zero: object) -> None:
        self.name = name
        self.code = code
        """Its letter for `struct`; of a type with a length, the letter of that length."""
        self.size = size
        """Its bytes, or 0 where it has a length."""
        self.zero = zero

    @property
    def is_number(self) -> bool:
        """Whether an array of it is one `struct` call."""
        return self.size > 0 and self.code in UNPACK_ARRAY


BOOL = Primitive("bool", "?", 1, zero=False)
INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
UINT32 = Primitive("uint32", "I", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
UUID = Primitive("uuid", "16s", 16, bytes(16))
STRING = Primitive("string", "h", 0, "")
BYTES = Primitive("bytes", "i", 0, b"")
RECORDS = Primitive("records", "i", 0, None)
"""Read as a view into the frame and written as a piece of its own: never copied."""


def uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position behind it.

    >>> uvarint(memoryview(bytes([0xAC, 0x02])), 0)
    (300, 2)
    """
    first = view[position]
    if first < 128:
        return first, position + 1
    return uvarint_rest(view, position + 1, first)


def uvarint_rest(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """As `uvarint`, where the first byte is read and says that more follow."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                break
            return value, position
    raise WireError(f"varint of more than 32 bits ends at byte {position}")


def uvarint_bytes(value: int) -> bytes:
    """The encoding of `uvarint`.

    >>> uvarint_bytes(300)
    b'\\xac\\x02'
    """
    assert 0 <= value <= 0xFFFF_FFFF, value
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(view: memoryview, position: int, count: int, end: int) -> int:
    """Behind a section of tagged fields that nobody here knows."""
    if count > 127:
        count, position = uvarint_rest(view, position, count)
        check_tags(count)
    for _ in range(count):
        _, position = uvarint(view, position)
        size, position = uvarint(view, position)
        if size > end - position:
            bad_length(size, position)
        position += size
    return position


def check_tags(count: int) -> None:
    if count > TAGGED_FIELDS_MAX:
        raise WireError(f"{count} tagged fields in one section, {TAGGED_FIELDS_MAX} are allowed")


def bad_length(length: int, position: int) -> NoReturn:
    """A length that is negative, or that the rest of the frame cannot hold."""
    raise WireError(f"length {length} before byte {position}")


def bad_count(count: int, position: int, fitting: bool) -> NoReturn:  # noqa: FBT001 -- generated code calls it
    """The number of elements of an array: the rest of the frame cannot hold them, or the reader
    does not take as many."""
    if not fitting:
        bad_length(count, position)
    too_wide(position)


def too_wide(position: int) -> NoReturn:
    raise TooWideError(f"too many elements before byte {position}")


def bad_size(position: int, expected: int) -> NoReturn:
    raise WireError(f"value ends at byte {position}, its frame says {expected}")


def too_long(text: bytes) -> NoReturn:
    raise WireError(
        f"string of {len(text)} bytes, {STRING_BYTES_MAX} are allowed: {text[:40]!r}..."
    )


ARRAY_SMALL = 9
_ARRAY_CODES = "bhiq"
UNPACK_ARRAY = {
    code: tuple(Struct(f">{n}{code}").unpack_from for n in range(ARRAY_SMALL))
    for code in _ARRAY_CODES
}
PACK_ARRAY = {
    code: tuple(Struct(f">{n}{code}").pack for n in range(ARRAY_SMALL)) for code in _ARRAY_CODES
}
"""Arrays of numbers are one `struct` call each; replica lists and the like are this short."""

assert REQUEST_BYTES_MAX < 2**31
