"""Random messages of any API and version, made from the rows of their classes."""

from random import Random
from typing import Any

from tidelog.wire import primitives
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import AnyApi
from tidelog.wire.primitives import Primitive
from tidelog.wire.registry import MODULES, api_for
from tidelog.wire.schema import Array, Row, WireType, rows_of

Value = Any
"""A message, or what a field of one holds."""

APIS: list[AnyApi] = [api_for(key) for key in MODULES]
DIRECTIONS = ("request", "response")
VERSIONS: list[tuple[AnyApi, int]] = [(api, version) for api in APIS for version in api.versions]

_BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
_UNSIGNED_BITS = {"H": 16, "I": 32}
_TEXTS = ("", "a", "topic-1", "ключ", "x" * 126, "y" * 127, "z" * 300, "\x00")
_TIME_MS_MAX = 4_000_000_000_000


def api_id(api: AnyApi) -> str:
    return f"{api.key:02d}-{api.name}"


def message_class(api: AnyApi, direction: str) -> type[Any]:
    """The class of one direction."""
    made: type[Any] = api.request if direction == "request" else api.response
    return made


def random_message(cls: type[Any], version: int, random: Random) -> Value:
    """Every field that the version has is random; the others keep their defaults."""
    message = cls()
    for row in rows_of(cls):
        if version in row.versions:
            setattr(message, row.name, _value(row, version, random))
    return message


def _value(row: Row, version: int, random: Random) -> Value:
    tagged = row.is_tagged(version)
    if tagged and random.random() < 0.5:
        return row.default if not row.makes_default else []
    if row.is_nullable(version) and random.random() < 0.25:
        return None
    made = _of_type(row.type, row.name, version, random)
    if tagged and isinstance(row.type, type):
        while made == row.type():  # a struct of defaults is left out by other codecs
            made = _of_type(row.type, row.name, version, random)
    return made


def _of_type(kind: WireType, name: str, version: int, random: Random) -> Value:
    if isinstance(kind, Array):
        count = random.choice((0, 1, 1, 2, 3, 12))
        if not isinstance(kind.element, Primitive):
            count = min(count, 3)
        elif random.random() < 0.05:
            count = 200
        return [_of_type(kind.element, name, version, random) for _ in range(count)]
    if isinstance(kind, Primitive):
        return _primitive(kind, name, random)
    return random_message(kind, version, random)


def _primitive(kind: Primitive, name: str, random: Random) -> Value:
    if kind is primitives.STRING:
        return random.choice(_TEXTS)
    if kind in {primitives.BYTES, primitives.RECORDS}:
        return random.randbytes(random.choice((0, 1, 126, 127, 400)))
    if kind is primitives.UUID:
        return random.choice((bytes(16), random.randbytes(16)))
    if kind is primitives.BOOL:
        return random.random() < 0.5
    if kind is primitives.FLOAT64:
        return random.uniform(-1e9, 1e9)
    return _number(kind, name, random)


def _number(kind: Primitive, name: str, random: Random) -> int:
    if name.endswith("error_code"):
        return int(random.choice(list(ErrorCode)))
    if kind.code in _UNSIGNED_BITS:
        return random.getrandbits(_UNSIGNED_BITS[kind.code])
    bits = _BITS[kind.code]
    if name.endswith(("_ms", "timestamp")):
        return random.randrange(min(_TIME_MS_MAX, 2**bits))
    edges = (-(2**bits), -1, 0, 1, 2**bits - 1)
    return random.choice((*edges, random.randrange(-(2**bits), 2**bits)))
