"""What every command shares: tables, JSON, errors of one sentence, common options, help."""

import difflib
import functools
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

import click
from msgspec import Struct

from tidelog.tools.completing import cluster_names, clusters

DONE, FAILED, WRONG_USAGE, NOT_FOUND, UNREACHABLE, VIOLATION, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
CLUSTER_DEFAULT = "default"
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NEAR = 0.6
_SUMMARY_LENGTH_MAX = 200

P = ParamSpec("P")
R = TypeVar("R")


class CliError(click.ClickException):
    """One sentence on standard error, and the exit code of the contract."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(sentence)
        self.code = code


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    raise CliError(sentence, code)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]!r}?" if near else ""


def not_found(kind: str, name: str, known: Iterable[str], *, see: str) -> CliError:
    """What to raise where a command was given a name nobody has; `see` tells those there are."""
    hint = nearest(name, known) or f": see {see}"
    return CliError(f"there is no {kind} {name!r}{hint}", NOT_FOUND)


# -- printing -----------------------------------------------------------------------------------


def emit_json(document: object) -> None:
    """One document, or one object of a stream, on a line of its own."""
    click.echo(json_text(document))


def json_text(document: object) -> str:
    """JSON that standard output can show."""
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # another encoding, or a stranger's half characters
        text = json.dumps(document)
    return text


def note(text: str) -> None:
    """Progress and remarks: never on standard output, which belongs to the result."""
    click.echo(text, err=True)


def table(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """A table on a terminal, aligned plain text in a pipe; numbers stand to the right."""
    texts = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        _terminal_table(texts, columns, right)
    else:
        _plain_table(texts, columns, right)


def _cell(value: object) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(_cell(element) for element in value) or "-"
        case _:
            return escaped(str(value))


def escaped(text: str) -> str:
    """A stranger's text must not move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _plain_table(
    rows: Sequence[Sequence[str]], columns: Sequence[str], right: Sequence[bool]
) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _terminal_table(
    rows: Sequence[Sequence[str]], columns: Sequence[str], right: Sequence[bool]
) -> None:
    from rich import box  # noqa: PLC0415 -- 50 ms that only a person at a terminal pays
    from rich.console import Console  # noqa: PLC0415 -- as above
    from rich.table import Table  # noqa: PLC0415 -- as above
    from rich.text import Text  # noqa: PLC0415 -- as above

    console = Console()
    widths = [
        max(len(text) for text in (*column.split(), *(row[at] for row in rows)))
        for at, column in enumerate(columns)
    ]
    gap = 1 if sum(widths) + 2 * len(widths) <= console.width else 0
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))
    for column, to_right in zip(columns, right, strict=True):
        # Folded, never cut: a name is there to be copied.
        shown.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    console.print(shown)


_ROWS_MEASURED = 500


def stream_table(rows: Iterable[Sequence[object]], columns: Sequence[str]) -> None:
    """A table of any length, printed as its rows come: the first ones give the widths."""
    source: Iterator[list[str]] = ([_cell(value) for value in row] for row in rows)
    first = list(islice(source, _ROWS_MEASURED))
    lines = [list(columns), *first]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in itertools.chain(lines, source):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def moment(timestamp_ms: int) -> str:
    """A record's timestamp for people, in UTC; a number that is no moment stays one.

    >>> moment(0), moment(-1), moment(2**62)
    ('1970-01-01T00:00:00.000Z', '-', '4611686018427387904')
    """
    if timestamp_ms < 0:
        return "-" if timestamp_ms == -1 else str(timestamp_ms)
    try:
        at = datetime.fromtimestamp(timestamp_ms // 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1_000:03}Z"


def span(milliseconds: float) -> str:
    """A length of time for people; what is not over yet has none.

    >>> span(850), span(12_340), span(200_000), span(9_000_000), span(400_000_000), span(-5)
    ('0.8 s', '12.3 s', '3.3 min', '2.5 h', '4.6 d', '0.0 s')
    """
    value = max(milliseconds, 0) / 1_000
    for unit, size_in_next in (("s", 60), ("min", 60), ("h", 24)):
        if value < size_in_next:
            return f"{value:.1f} {unit}"
        value /= size_in_next
    return f"{value:.1f} d"


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Gives what to call with each step of long work; None where no person looks on."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 -- only a person at a terminal pays
    from rich.progress import Progress  # noqa: PLC0415 -- as above

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield functools.partial(progress.advance, task)


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things.

    >>> counted(1, "batch", "batches"), counted(0, "batch", "batches"), counted(2, "record")
    ('1 batch', '0 batches', '2 records')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Iterable[str]) -> str:
    """One or more words as a sentence has them.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def size(byte_count: int) -> str:
    """Bytes for people.

    >>> size(0), size(1536), size(5 * 1024**3)
    ('0 B', '1.5 KiB', '5.0 GiB')
    """
    value = float(byte_count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{byte_count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def topic_and_partition(text: str) -> tuple[str, int]:
    """Of `orders:0`."""
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{text!r}: must be TOPIC:PARTITION")
    return topic, int(number)


# -- which cluster ------------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """Which cluster a command is about."""

    cluster: str = CLUSTER_DEFAULT
    data: str | None = None
    bootstrap: str | None = None

    @classmethod
    def named(cls, cluster: str | None, data: str | None) -> Self:
        """As an argument names it; a wrong name is wrong usage."""
        return cls(_checked_name(cluster or CLUSTER_DEFAULT), data)

    @property
    def folder(self) -> Path:
        """Absolute; of a cluster by name it is under the current folder."""
        given = Path(self.data) if self.data else Path(".tidelog") / self.cluster
        return Path(os.path.abspath(given))  # noqa: PTH100 -- a link stays as the user wrote it

    @property
    def words(self) -> str:
        """What names it behind another command, with a blank before; the default needs nothing."""
        if self.bootstrap:
            return f" --bootstrap {shlex.quote(self.bootstrap)}"
        if self.data:
            return f" --data {shlex.quote(self.data)}"
        return "" if self.cluster == CLUSTER_DEFAULT else f" --cluster {self.cluster}"

    @property
    def label(self) -> str:
        return f"cluster in {self.folder}" if self.data else f"cluster {self.cluster!r}"

    def servers(self) -> list[str]:
        """`host:port` texts to begin with: as given, or the running cluster's."""
        if self.bootstrap:
            return [one.strip() for one in self.bootstrap.split(",") if one.strip()]
        from tidelog.tools.supervisor.folder import find, is_held, run_in  # noqa: PLC0415 -- seldom

        folder = find(self.folder)
        run = run_in(folder)
        if run is None or not is_held(folder):
            raise self.not_running()
        return run.bootstrap.split(",")

    def not_running(self) -> CliError:
        """What to raise where nobody answers for the cluster, or there is none."""
        from tidelog.tools.whereabouts import missing  # noqa: PLC0415 -- most find their cluster

        return missing(self, clusters())

    def folder_of_data(self) -> Path:
        """For commands that read files, running or not; the command ends where no cluster is."""
        from tidelog.tools.supervisor.folder import find  # noqa: PLC0415 -- as above
        from tidelog.tools.whereabouts import is_there  # noqa: PLC0415 -- as above

        folder = find(self.folder)
        if not is_there(folder):
            raise self.not_running()
        return folder


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--json`, given to the command as `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON: one document, or one object a line."
    )(command)


def profile_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--profile`, for a command that gathers the settings of a start."""
    return click.option(
        "--profile",
        metavar="NAME",
        envvar="TIDELOG_PROFILE",
        help="With what [profile.NAME] of the .toml says.",
    )(command)


def yes_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--yes`, for a command that calls `confirm`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def confirm(what: str, *, yes: bool, verb: str = "delete") -> None:
    """Before something is lost for good: ask on a terminal; elsewhere nobody could answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"this {verb}s {what}: add --yes")
    click.confirm(f"{verb.capitalize()} {what}?", abort=True, err=True)


def cluster_options(command: Callable[..., R]) -> Callable[..., R]:
    """`--cluster` and `--data`, given to the command as `target`."""

    @functools.wraps(command)
    def with_target(*args: object, cluster: str, data: str | None, **more: object) -> R:
        bootstrap = more.pop("bootstrap", None)
        target = Target(_checked_name(cluster), data, str(bootstrap) if bootstrap else None)
        return command(*args, target=target, **more)

    name = click.option(
        "--cluster",
        default=CLUSTER_DEFAULT,
        envvar="TIDELOG_CLUSTER",
        show_default=True,
        metavar="NAME",
        shell_complete=cluster_names,
        help="Which cluster; its data is in ./.tidelog/NAME.",
    )
    folder = click.option(
        "--data", envvar="TIDELOG_DATA", metavar="DIR", help="The cluster's data, if elsewhere."
    )
    return name(folder(with_target))


def bootstrap_options(command: Callable[..., R]) -> Callable[..., R]:
    """`--cluster`, `--data` and `--bootstrap`, given to the command as `target`."""
    servers = click.option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        "bootstrap",
        envvar="TIDELOG_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Any Kafka cluster, instead of one of ours.",
    )
    return servers(cluster_options(command))


def _checked_name(cluster: str) -> str:
    if not _CLUSTER_NAME.fullmatch(cluster):
        raise click.UsageError(
            f"--cluster {cluster!r}: must be letters, digits, '.', '_' or '-', at most 100"
        )
    return cluster


# -- help and names -----------------------------------------------------------------------------


class Command(click.Command):
    """A command whose help begins with examples, and whose errors name the nearest option."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:  # noqa: ANN401 -- click's
        super().__init__(*args, **more)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


class Group(click.Group):
    """A group of commands: takes plural nouns silently, answers unknown names with the nearest."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:  # noqa: ANN401 -- click's
        super().__init__(*args, **more)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line of each command, whole: click would cut it off."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(one)) for name, one in self._visible(ctx)])

    def _visible(self, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield name, command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, cmd_name.removesuffix("s"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {name!r}{near}", ctx)
        return super().resolve_command(ctx, args)


def _first_sentence(command: click.Command) -> str:
    return command.get_short_help_str(_SUMMARY_LENGTH_MAX)


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")
    formatter.write_paragraph()
