"""Messages as typed classes; their rows carry what the wire needs: type, versions, null, tag.

    @message
    class FetchPartition:
        partition: int = row(INT32)
        current_leader_epoch: int = row(INT32, "9+", default=-1)

A class costs little until it is used: `__init__` is made at the first instance, the readers and
writers of an API at its first request (`compile.py`). `dataclasses` would do neither and takes
longer to import than this whole package.

A field is None where the class says so: nullable fields by the row's `nullable`, and *tagged
structs*, where None means that the tag is absent (Kafka's default instance). A field that a
version does not carry is not written, and is read as its default.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, dataclass_transform

from tidelog.kernel.limits import REQUEST_ELEMENTS_MAX
from tidelog.wire.primitives import Primitive

RequestT_co = TypeVar("RequestT_co", covariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
MessageT = TypeVar("MessageT")

VERSION_MAX = 32_767


class Array:
    """So many of one element.

    `encoded`: a writer also takes an element as the bytes that it has in that version, so that what
    seldom changes and is often sent need not be written each time.
    """

    __slots__ = ("element", "encoded")

    def __init__(self, element: "WireType", *, encoded: bool) -> None:
        self.element = element
        self.encoded = encoded


WireType = Primitive | Array | type
"""A struct is its class."""


def array(element: WireType, *, encoded: bool = False) -> Array:
    return Array(element, encoded=encoded)


class Span:
    """A range of versions as Kafka's schemas write it: "3+", "0-12", "7"."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        first, dash, last = text.partition("-")
        self.first = int(first.rstrip("+"))
        self.last = int(last) if dash else VERSION_MAX if first.endswith("+") else self.first

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


_SPANS: dict[str, Span] = {}


def _span(text: str) -> Span:
    span = _SPANS.get(text)
    if span is None:
        span = _SPANS[text] = Span(text)
    return span


_UNSET: Any = object()


class Row:
    """One field. `name` is known once its class is."""

    __slots__ = ("default", "name", "nullable", "tag", "tagged", "type", "versions")

    name: str

    def __init__(
        self,
        type_: WireType,
        versions: str,
        *,
        nullable: str | None,
        default: object,
        tag: int | None,
        tagged: str | None,
    ) -> None:
        assert isinstance(type_, Primitive | Array) or hasattr(type_, "__rows__"), type_
        self.type = type_
        self.versions = _span(versions)
        self.nullable = _span(nullable) if nullable else None
        self.tag = tag
        self.tagged = None if tag is None else _span(tagged or versions)
        self.default = self._zero() if default is _UNSET else default

    def is_tagged(self, version: int) -> bool:
        return self.tagged is not None and version in self.tagged

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable

    @property
    def makes_default(self) -> bool:
        """True where each instance needs a default of its own: lists and structs."""
        return self.default is _UNSET

    def _zero(self) -> object:
        if isinstance(self.type, Primitive):
            return self.type.zero
        return None if self.tag is not None and not isinstance(self.type, Array) else _UNSET


def row(
    type_: WireType,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: object = _UNSET,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:  # noqa: ANN401 -- the class says the type
    """A field of a message: its wire type, and the versions that carry it.

    Without `default` it is 0, "", False, the zero uuid, an empty list, or a struct of defaults.
    `tagged` are the versions that carry it as tagged field `tag`, by default all of `versions`.
    """
    return Row(type_, versions, nullable=nullable, default=default, tag=tag, tagged=tagged)


@dataclass_transform(kw_only_default=True)
def message(cls: type[MessageT]) -> type[MessageT]:
    """Make a class of rows a message: slots, keyword-only `__init__`, equality by value, repr."""
    rows = tuple(value for value in vars(cls).values() if isinstance(value, Row))
    names = tuple(name for name, value in vars(cls).items() if isinstance(value, Row))
    for name, one in zip(names, rows, strict=True):
        one.name = name
    space: dict[str, Any] = {
        "__doc__": cls.__doc__,
        "__eq__": _equals,
        "__hash__": None,
        "__init__": _first_init,
        "__match_args__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__repr__": _repr,
        "__rows__": rows,
        "__slots__": names,
    }
    return type(cls.__name__, (), space)


def rows_of(cls: type) -> tuple[Row, ...]:
    """The rows of a message class, in the order of the wire."""
    rows: tuple[Row, ...] = cls.__rows__  # type: ignore[attr-defined]  # the decorator set it
    return rows


def _first_init(self: object, **given: object) -> None:
    cls: Any = type(self)
    cls.__init__ = _make_init(cls)
    self.__init__(**given)  # type: ignore[misc]  # made one line above


def _make_init(cls: type) -> Callable[..., None]:
    """`__init__` as straight-line source: as fast as one written by hand."""
    space: dict[str, Any] = {"UNSET": _UNSET}
    parameters, body = [], []
    for number, one in enumerate(rows_of(cls)):
        name = one.name
        if one.makes_default:
            made = "[]"
            if not isinstance(one.type, Array):
                made = f"T{number}()"
                space[f"T{number}"] = one.type
            parameters.append(f"{name}=UNSET")
            body.append(f" self.{name} = {made} if {name} is UNSET else {name}")
        else:
            space[f"D{number}"] = one.default
            parameters.append(f"{name}=D{number}")
            body.append(f" self.{name} = {name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(body or [" pass"])
    exec(source, space)  # noqa: S102 -- of our own rows only
    made_init: Callable[..., None] = space["__init__"]
    return made_init


def _equals(self: object, other: object) -> bool:
    if type(self) is not type(other):
        return False
    return all(getattr(self, one.name) == getattr(other, one.name) for one in rows_of(type(self)))


def _repr(self: object) -> str:
    fields = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in rows_of(type(self)))
    return f"{type(self).__name__}({fields})"


class ApiSchema(Generic[RequestT_co, ResponseT_co]):
    """One API key: its versions, and its two messages; `frame.py` keeps their functions here."""

    __slots__ = (
        "elements_max",
        "flexible_from",
        "key",
        "name",
        "request",
        "request_readers",
        "request_readers_at_once",
        "request_writers",
        "response",
        "response_readers",
        "response_writers",
        "response_writers_at_once",
        "versions",
    )

    def __init__(  # noqa: PLR0913 -- what an API is, by keyword, once for each of them
        self,
        *,
        key: int,
        name: str,
        versions: range,
        flexible_from: int | None,
        request: type[RequestT_co],
        response: type[ResponseT_co],
        elements_max: int = REQUEST_ELEMENTS_MAX,
    ) -> None:
        self.elements_max = elements_max
        """A request of more cannot be read: WireError."""
        self.key = key
        self.name = name
        self.versions = versions
        self.flexible_from = VERSION_MAX if flexible_from is None else flexible_from
        self.request = request
        self.response = response
        self.request_readers: dict[int, Callable[..., Any]] = {}
        self.request_readers_at_once: dict[int, Callable[..., Any]] = {}
        self.request_writers: dict[int, Callable[..., Any]] = {}
        self.response_readers: dict[int, Callable[..., Any]] = {}
        self.response_writers: dict[int, Callable[..., Any]] = {}
        self.response_writers_at_once: dict[int, Callable[..., Any]] = {}

    def is_flexible(self, version: int) -> bool:
        """Compact lengths and tagged fields, in the body and in the headers."""
        return version >= self.flexible_from

    def __repr__(self) -> str:
        return f"{self.name}({self.key})"
