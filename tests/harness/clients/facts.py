"""What the tests ask of every Kafka client, and what each client reports back in the same words.

A driver in this folder turns one published client into a `Writer`, a `Reader`, or both. The
tests then state each fact once, for all of them.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, runtime_checkable

DEADLINE_S = 60
"""How long any single call of any client may take."""

CODECS: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

OFFSET_OUT_OF_RANGE = 1
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_CONFIG = 40


class Shape(Enum):
    """Records that the protocol allows and some clients cannot express."""

    NULL_HEADER = "a header whose value is null"
    NOTHING = "neither key nor value"
    HEADERS_IN_TURN = "a header name that comes again after another"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as an application hands it over."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """Where the broker says it put a record."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as a consumer hands it over."""

    partition: int
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class Writing:
    """How a producer is set up; the defaults are those the tests want, not the client's."""

    codec: str = "none"
    idempotent: bool = True
    request_bytes_max: int = 1 << 20
    linger_ms: int = 20
    partitioner: str = "murmur2"


USUAL = Writing()


class Running(Protocol):
    """A cluster that is up, whoever started it."""

    @property
    def bootstrap(self) -> str: ...


class Refused(Exception):  # noqa: N818 -- named by what the broker did
    """The broker (or the client on its behalf) answered with one of Kafka's error codes."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


class Writer(Protocol):
    """A client that creates topics and produces."""

    name: str
    codecs: tuple[str, ...]
    cannot: frozenset[Shape]

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def partitions(self, topic: str) -> int: ...

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = 0,
        writing: Writing = USUAL,
    ) -> list[Position]: ...


@runtime_checkable
class OffsetReader(Protocol):
    """A client that asks for offsets."""

    name: str

    def span(self, topic: str, partition: int) -> tuple[int, int]: ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None: ...


@runtime_checkable
class Reader(OffsetReader, Protocol):
    """A client that consumes partitions it was told to, without a group."""

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]: ...


RARE_SHAPES = {
    Shape.NULL_HEADER: Record(b"null header", headers=(("none", None),)),
    Shape.NOTHING: Record(None),
    Shape.HEADERS_IN_TURN: Record(b"in turn", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
}


@dataclass(frozen=True, slots=True)
class Samples:
    """Records of every shape a client can write, in an order that is part of the fact."""

    writer: Writer
    base_ms: int = field(default_factory=lambda: now_ms() - 60_000)

    def records(self) -> list[Record]:
        shapes = [
            Record(b"plain"),
            Record(b"keyed", key=b"key"),
            Record(None, key=b"tombstone"),
            Record(b"", key=b""),
            Record("läsbar ✓".encode(), key="schlüssel".encode()),
            Record(bytes(range(256)), key=bytes(range(255, -1, -1))),
            Record(b"headers", headers=(("a", b"1"), ("b", b""), ("c", b"\x00\xff"))),
            Record(b"name", key=b"n", headers=(("größe", b"twice"), ("größe", b"once more"))),
            Record(b"compressible " * 1_000, key=b"long"),
            *(shape for kind, shape in RARE_SHAPES.items() if kind not in self.writer.cannot),
            Record(b"last"),
        ]
        return [
            replace(shape, timestamp_ms=self.base_ms + 7 * position)
            for position, shape in enumerate(shapes)
        ]


def stored(records: Sequence[Record], *, partition: int = 0, start: int = 0) -> list[Stored]:
    """How records must come back when they were the next ones of a partition."""
    return [Stored(partition, start + position, record) for position, record in enumerate(records)]


def fresh_topic(prefix: str = "client") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def now_ms() -> int:
    return int(time.time() * 1_000)
