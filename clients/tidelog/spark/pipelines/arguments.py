"""A program's arguments: a data class is the whole description of them.

Each field `some_name` is the option `--some-name`; fields without a default must be given. What a
field is made of says how its text is read.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from tidelog.clients.client import Client
from tidelog.kernel.sizes import byte_count
from tidelog.spark.durations import duration_ms
from tidelog.spark.pipelines.failures import UsageError

_PARSE = "parse"

Parse = Callable[[str], Any]
KindT = TypeVar("KindT")


def whole(text: str) -> int:
    """ValueError where it is no whole number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("must be a whole number")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not whole(text):
        raise ValueError("must be 1 or more")
    return int(text)


def size(text: str) -> int:
    """
    >>> size("100"), size("1KiB"), size("3 MiB")
    (100, 1024, 3145728)
    """
    found = byte_count(text.strip())
    if found is None:
        raise ValueError("must be a size as 100, 1KiB or 3MiB")
    return found


def number(text: str) -> float:
    """A number that is not negative."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("must be 0 or more")
    return value


def seconds(text: str) -> float:
    """
    >>> seconds("500ms"), seconds("2m")
    (0.5, 120.0)
    """
    return duration_ms(text) / 1000


def one_of(*words: str) -> Parse:
    """Only these."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
        return text

    return parse


def option(parse: Parse, default: Any = MISSING) -> Any:  # noqa: ANN401 -- a field, as dataclasses types it
    """A field whose text is read so."""
    return field(default=default, metadata={_PARSE: parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What every program takes."""

    bootstrap: str
    master: str = "local[*]"
    conf: tuple[str, ...] = ()
    """`NAME=VALUE` of Spark."""

    def check(self) -> None:
        """UsageError where they do not go together."""

    def look(self, client: Client) -> None:
        """What must be there is looked for, or made, before a session is waited for."""


def option_name(field_name: str) -> str:
    """
    >>> option_name("latest_by_key")
    '--latest-by-key'
    """
    return "--" + field_name.replace("_", "-")


def parse(kind: type[KindT], words: Sequence[str]) -> KindT:
    """The arguments; UsageError with what is right where that is not possible."""
    rows: dict[str, Field[Any]] = {
        option_name(one.name): one
        for one in fields(kind)  # type: ignore[arg-type]  # a data class, as all of these are
    }
    given: dict[str, Any] = {}
    for row, value in _given(rows, words):
        given[row.name] = (*given.get(row.name, ()), value) if row.default == () else value
    missing = list(_missing(rows, given))
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given")
    return kind(**given)


def _given(
    rows: Mapping[str, Field[Any]], words: Sequence[str]
) -> Iterator[tuple[Field[Any], Any]]:
    """Each option that stands there, as `--name=text` or `--name text`, and its value."""
    rest = iter(words)
    for word in rest:
        name, equals, text = word.partition("=")
        row = rows.get(name)
        if row is None:
            raise UsageError(_unknown(name, rows))
        if row.type is bool:
            yield row, True
            continue
        value = text if equals else next(rest, None)
        if value is None:
            raise UsageError(f"{name} needs a value")
        yield row, _read(name, row, value)


def _read(name: str, row: Field[Any], text: str) -> Any:  # noqa: ANN401 -- of any kind
    try:
        return row.metadata.get(_PARSE, str)(text)
    except ValueError as error:
        raise UsageError(f"{name}={text}: {error}") from None


def _missing(rows: Mapping[str, Field[Any]], given: Mapping[str, Any]) -> Iterator[str]:
    for name, row in rows.items():
        if row.default is MISSING and row.name not in given:
            yield name


def _unknown(name: str, rows: Mapping[str, Field[Any]]) -> str:
    near = difflib.get_close_matches(name, rows, n=1)
    return f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
