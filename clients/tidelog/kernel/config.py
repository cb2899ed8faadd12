"""One row per setting: read it, check it, render it as docs, --help and DescribeConfigs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.texts import quoted

_MAY_BE_EMPTY: Final = frozenset({"string", "password"})


class SettingError(ValueError):
    """A setting that cannot be taken; the text says which, its value, and the rule."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `parse` raises ValueError on a value that breaks the rule."""

    name: str
    parse: Callable[[str], Any]
    default: str
    rule: str
    doc: str
    kind: str = "string"
    """Kafka's type name for DescribeConfigs: boolean, string, int, short, long, double, list,
    class, password; a password's value is told to nobody."""
    effect: bool = True
    """False: known and checked as Kafka's, without effect here; `doc` says so."""
    unset: bool = False
    """Kafka has no default: where nothing is given there is no value, and its text is empty."""

    def read(self, text: str) -> Any:  # noqa: ANN401 -- a row's type is known to its reader only
        try:
            return self.parse(text)
        except ValueError as error:
            raise SettingError(f"{self.name}={quoted(text)!r}: {self.rule}") from error


def canonical(row: Setting, given: str) -> str:
    """The text of a checked value as it is kept and told: no blanks, words in one case."""
    if row.kind == "list":
        return ",".join(part.strip() for part in given.split(","))
    stripped = given.strip()
    return stripped.lower() if row.kind == "boolean" else stripped


class Table:
    """A set of rows, by name, in order.

    `more` makes further rows when a name is asked for that is not among the first: hundreds that
    have no effect need not be made at every start.
    """

    def __init__(
        self, rows: Sequence[Setting], more: Callable[[], Sequence[Setting]] | None = None
    ) -> None:
        self.rows = {row.name: row for row in rows}
        assert len(self.rows) == len(rows), "a setting stands twice in its table"
        self._more = more
        self._all: dict[str, Setting] | None = None
        for row in rows:
            row.read(row.default)

    def __contains__(self, name: str) -> bool:
        return name in self.rows or name in self.all_rows()

    def all_rows(self) -> Mapping[str, Setting]:
        """With those that `more` makes."""
        if self._all is None:
            added = self._more() if self._more is not None else ()
            self._all = self.rows | {row.name: row for row in added}
            assert len(self._all) == len(self.rows) + len(added), "a setting stands twice"
        return self._all

    def row(self, name: str) -> Setting:
        """The row of a known name, without making the others where that can be."""
        return self.rows.get(name) or self.all_rows()[name]

    def check(self, name: str, text: str) -> Any:  # noqa: ANN401 -- as Setting.read
        """The value of one setting, or SettingError; an unknown name is told its neighbour."""
        row = self.rows.get(name) or self.all_rows().get(name)
        if row is None:
            raise SettingError(f"unknown setting {quoted(name)!r}{self._nearest(name)}")
        if not text and row.unset and row.kind not in _MAY_BE_EMPTY:
            raise SettingError(f"{name}='': {row.rule}; who wants it unset leaves it out")
        return row.read(text)

    def read(self, given: Mapping[str, str], name: str) -> Any:  # noqa: ANN401 -- as Setting.read
        """The value in force: what is given, else the default."""
        row = self.row(name)
        return row.read(given.get(name, row.default))

    def _nearest(self, name: str) -> str:
        import difflib  # noqa: PLC0415 -- only a mistake pays for it

        near = difflib.get_close_matches(name, self.all_rows(), n=1, cutoff=0.6)
        return f"; did you mean {near[0]!r}?" if near else ""


def boolean(text: str) -> bool:
    """true or false, in any case."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"


def _digits(text: str) -> str:
    """Python reads 1_000, too, and the digits of all scripts; other readers of a setting do not."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text.strip()


def integer(low: int, high: int) -> Callable[[str], int]:
    """A whole number between both, both included."""

    def parse(text: str) -> int:
        number = int(_digits(text))
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(_digits(text))
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return parse


def one_of_any_case(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text

    return parse


def list_of(fits: Callable[[str], bool], *, empty: bool = True) -> Callable[[str], tuple[str, ...]]:
    """A comma-separated list of different entries that fit; whether it may be empty."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
        if not given and not empty:
            raise ValueError(text)
        if len(set(given)) < len(given) or not all(part and fits(part) for part in given):
            raise ValueError(text)
        return given

    return parse


def words_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """A comma-separated list, each one of the words, and each once."""
    return list_of(frozenset(words).__contains__)


def or_unset(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """As `parse`; an empty text is no value, which is None."""

    def parse_or_unset(value: str) -> Any:  # noqa: ANN401 -- as Setting.read
        return None if not value else parse(value)

    return parse_or_unset


def text(value: str) -> str:
    """Anything."""
    return value


def some_text(value: str) -> str:
    """Anything but nothing."""
    if not value.strip():
        raise ValueError(value)
    return value
