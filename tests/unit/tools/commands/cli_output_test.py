"""Tables, JSON, names and exit codes that all commands share."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from tidelog.tools import cli
from tidelog.tools.output import (
    CliError,
    Command,
    Target,
    bootstrap_options,
    emit_json,
    not_found,
    size,
    table,
)


def test_a_table_in_a_pipe_is_aligned_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    table([("orders", 3, None), ("a", 12, "x,y")], ("topic", "parts", "what"))
    assert capsys.readouterr().out.splitlines() == [
        "topic   parts  what",
        "orders      3  -",
        "a          12  x,y",
    ]


def test_a_strangers_name_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    table([("\x1b[2J\u202e", True, [1, 2], [])], ("a", "b", "c", "d"))
    assert capsys.readouterr().out.splitlines()[1] == "\\x1b[2J\\u202e  yes  1,2  -"


def test_an_empty_table_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    table([], ("topic", "parts"))
    assert capsys.readouterr().out == "topic  parts\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Shown = Callable[[Sequence[Sequence[object]], Sequence[str]], str]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """A table as a terminal of 80 columns without colours gets it."""
    for name, value in (("NO_COLOR", "1"), ("COLUMNS", "80"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)

    def show(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> str:
        terminal = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            table(rows, columns)
        return terminal.getvalue()

    return show


def test_a_table_on_a_terminal_shows_markup_as_it_is(shown: Shown) -> None:
    assert "[red]x[/red]" in shown([("[red]x[/red]", 1)], ("name", "n"))


def test_nothing_is_cut_off_on_a_narrow_terminal(shown: Shown) -> None:
    text = shown([("q" * 249, *range(8))], ("TOPIC", *(f"COLUMN{n}" for n in range(8))))
    assert text.count("q") == 249
    assert "…" not in text


def test_the_table_of_partitions_fits_a_terminal(shown: Shown) -> None:
    columns = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR"]
    row = ("orders", 0, 0, 0, "0,1,2", "0,1,2", None, 1_000_000, 0, "72.5 KiB")
    text = shown([row], ("TOPIC", *columns, "HIGH WATERMARK", "LOG START", "SIZE"))
    whole = [line for line in text.splitlines() if "orders" in line and "72.5 KiB" in line]
    assert len(whole) == 1
    assert all(heading in text for heading in columns)


def test_json_is_one_line_and_always_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit_json({"a": "é"})
    assert capsys.readouterr().out == '{"a": "é"}\n'
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", narrow)
    emit_json({"a": "✓\udc80"})
    narrow.seek(0)
    assert json.loads(narrow.read()) == {"a": "✓\udc80"}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**40, "1.0 TiB")]
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_an_unknown_name_is_told_the_nearest() -> None:
    error = not_found("topic", "orderz", ["orders", "payments"], see="a list")
    assert error.message == "there is no topic 'orderz'; did you mean 'orders'?"
    assert error.code == 3
    strange = not_found("topic", "zzz", ["orders"], see="tidelog topic list")
    assert strange.message == "there is no topic 'zzz': see tidelog topic list"


def test_a_cluster_lives_under_the_current_folder_or_where_it_is_told() -> None:
    assert Target("x").folder == Path.cwd() / ".tidelog" / "x"
    assert Target("x", data="/somewhere/../else").folder == Path("/else")


def test_servers_are_taken_as_given_or_from_the_running_cluster(tmp_path: Path) -> None:
    assert Target(bootstrap="a:1, b:2,").servers() == ["a:1", "b:2"]
    with pytest.raises(CliError, match="there is no cluster in") as raised:
        Target(data=str(tmp_path)).servers()
    assert raised.value.code == 3
    (tmp_path / "cluster.json").touch()
    with pytest.raises(CliError, match="is not running") as raised:
        Target(data=str(tmp_path)).servers()
    assert raised.value.code == 4


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ([], Target()),
        (["--cluster", "x"], Target("x")),
        (["-b", "h:1"], Target(bootstrap="h:1")),
        (["--bootstrap-server", "h:1"], Target(bootstrap="h:1")),
        (["--data", "d"], Target(data="d")),
    ],
)
def test_a_command_is_given_its_target(words: list[str], target: Target) -> None:
    seen = []

    @click.command(cls=Command)
    @bootstrap_options
    def command(target: Target) -> None:
        seen.append(target)

    command.main(words, standalone_mode=False)
    assert seen == [target]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--help"], 0), ([], 2), (["nonsense"], 2), (["--nonsense"], 2), (["status", "x"], 2)],
)
def test_exit_codes_are_those_of_the_contract(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == code
    capsys.readouterr()


def test_every_command_is_there_and_tells_what_the_overview_says() -> None:
    context = click.Context(cli.cli)
    for name, (_, _, line) in cli.COMMANDS.items():
        command = cli.cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert line.endswith(".")


def test_plural_names_find_their_command() -> None:
    context = click.Context(cli.cli)
    for plural in ("topics", "brokers"):
        found = cli.cli.get_command(context, plural)
        assert found is not None
        assert found.name == plural.removesuffix("s")


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (CliError("no: do this", 5), 5, "error: no: do this\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (ZeroDivisionError("x"), 1, "error: this is a bug: ZeroDivisionError: x; --debug"),
        (CliError("two\nlines", 1), 1, "error: two lines\n"),
    ],
)
def test_whatever_a_command_raises_becomes_a_sentence_and_a_code(
    error: BaseException,
    code: int,
    part: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.cli, "main", broken)
    monkeypatch.setattr(cli, "_reader_left", lambda: 0)
    assert cli.run(["status"]) == code
    assert capsys.readouterr().err.startswith(part)
