"""Arguments of pipelines: read by what each field is made of, refused with what is right."""

from dataclasses import dataclass, fields

import click
import pytest

from harness.spark.pipelines import NAMES, arguments_of
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import Arguments, option, option_name, parse
from tidelog.spark.pipelines.failures import UsageError
from tidelog.tools.commands.pipeline import pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Some(Arguments):
    dest: str
    rows: int = option(given.size, 10)
    rate: float = option(given.number, 0.0)
    wait: float = option(given.seconds, 1.0)
    kind: str = option(given.one_of("a", "b", "c"), "a")
    latest_by_key: bool = False


def test_each_field_is_an_option() -> None:
    words = ["--bootstrap=h:1", "--dest", "x", "--rows=2MiB", "--wait=2m", "--latest-by-key"]
    read = parse(_Some, [*words, "--conf", "a=1", "--conf=b=2", "--kind", "b", "--rate=1.5"])
    assert read == _Some(
        bootstrap="h:1",
        dest="x",
        rows=2 << 20,
        rate=1.5,
        wait=120.0,
        kind="b",
        latest_by_key=True,
        conf=("a=1", "b=2"),
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--bootstrap and --dest must be given"),
        (["--bootstrap"], "--bootstrap needs a value"),
        (["--ros=1"], "there is no option '--ros'; did you mean '--rows'?"),
        (["word"], "there is no option 'word'"),
        (["--rows=0"], "--rows=0: must be a size as 100, 1KiB or 3MiB"),
        (["--rate=-1"], "--rate=-1: must be 0 or more"),
        (["--kind=d"], "--kind=d: must be a, b or c"),
    ],
)
def test_a_mistake_says_what_is_right(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(_Some, words)
    assert str(refused.value) == sentence


def test_whole_numbers_are_nothing_else() -> None:
    assert given.whole("0") == 0
    assert given.positive("7") == 7
    for parse_one, text in ((given.whole, "1.5"), (given.positive, "0"), (given.whole, "-1")):
        with pytest.raises(ValueError, match="must be"):
            parse_one(text)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_has_the_options_of_the_program_and_no_other(name: str) -> None:
    command = pipeline.get_command(click.Context(pipeline), name)
    assert command is not None
    told = {opt for one in command.params for opt in one.opts if opt.startswith("--")}
    own = {"--cluster", "--bootstrap-server", "--json", "--print-submit", "--data"}
    known = {option_name(one.name) for one in fields(arguments_of(name))}
    assert told - own == known - own
