"""The rules that hold for every command, checked on every command there is."""

import json
import re
import shlex
from collections.abc import Iterator
from threading import Event
from typing import Any

import click
import pytest

from harness.processes.command_tree import Path, groups, leaves
from tidelog.node.settings import BROKER, TOPIC
from tidelog.tools import cli
from tidelog.tools.completing import (
    PATIENCE_S_MIN,
    cluster_names,
    patience_s,
    topic_names,
    within,
)
from tidelog.tools.describing import EXIT_CODES, describe_all

ABOUT_PROCESSES = {"up", "down", "status", "broker", "coordinator", "logs", "log"} | {
    "txn-coordinator",
    "chaos",
    "disk",
    "metrics",
    "timeline",
    "why",
    "completion",
}
"""They are about a cluster of ours on this machine, or about none."""
WITHOUT_CLUSTER = {
    ("cluster", "list"),
    ("cluster", "delete"),
    ("config", "show"),
    ("config", "lint"),
    ("pipeline", "jars"),
    ("pipeline", "package"),
}
PLURALS_OF_THEIR_OWN = {"log"}
"""`logs` are what the processes say, `log` is what they keep."""

LEAVES = leaves(cli.cli)
GROUPS = groups(cli.cli)
ALL: dict[Path, click.Command] = {**GROUPS, **LEAVES}


def id_of(path: Path) -> str:
    return " ".join(path)


def flags(command: click.Command) -> set[str]:
    return {flag for option in command.params for flag in option.opts}


# -- every command ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LEAVES, ids=id_of)
def test_a_command_speaks_json(path: Path) -> None:
    assert "--json" in flags(LEAVES[path])


@pytest.mark.parametrize("path", LEAVES, ids=id_of)
def test_a_command_can_be_pointed_at_a_cluster(path: Path) -> None:
    known = flags(LEAVES[path])
    if path[0] not in ABOUT_PROCESSES and path not in WITHOUT_CLUSTER:
        assert {"-b", "--bootstrap", "--bootstrap-server"} <= known
    if path[0] != "completion" and path not in WITHOUT_CLUSTER:
        assert {"--cluster", "--data"} <= known


@pytest.mark.parametrize("path", ALL, ids=id_of)
def test_help_begins_with_two_or_three_examples_that_parse(path: Path) -> None:
    command = ALL[path]
    examples = getattr(command, "examples", ())
    assert 2 <= len(examples) <= 3, examples
    assert any(["tidelog", *path] == shlex.split(one)[: len(path) + 1] for one in examples) or any(
        " ".join(["tidelog", *path]) in one for one in examples
    )
    for example in examples:
        for words in _commands_in(example):
            _parse(cli.cli, words, None)
    ctx = click.Context(command, info_name=id_of(path), **cli.cli.context_settings)
    shown = command.get_help(ctx)
    assert shown.startswith("Examples:\n")


SETTING = re.compile(r"\b([a-z]+(?:\.[a-z]+)+)[+-]?=(\S+)")
TAKEN_BACK = re.compile(r"--unset (\S+)|config unset \S+ \S+ (\S+)")


EXAMPLES = [one for command in ALL.values() for one in getattr(command, "examples", ())]


def test_settings_in_examples_are_settings() -> None:
    given = [
        (TOPIC if " topic " in example else BROKER, *found)
        for example in EXAMPLES
        for found in SETTING.findall(example)
    ]
    assert len(given) > 5
    for table, name, value in given:
        table.check(name, value)


def test_settings_that_examples_take_back_are_settings() -> None:
    names = [
        name for example in EXAMPLES for found in TAKEN_BACK.findall(example) for name in found
    ]
    assert [name for name in names if name and name not in TOPIC and name not in BROKER] == []


def _commands_in(example: str) -> list[list[str]]:
    """The words after each `tidelog` in a line of shell."""
    found = re.findall(r"\btidelog ((?:[^|&>)\"']|\"[^\"]*\"|'[^']*')*)", example)
    assert found, example
    return [shlex.split(one) for one in found]


def _parse(command: click.Command, words: list[str], parent: click.Context | None) -> None:
    """As far as click goes; nothing is invoked."""
    name = "tidelog" if parent is None else command.name
    if isinstance(command, click.Group):
        if words[0].startswith("-"):
            assert words[0] in flags(command)
            return
        ctx = click.Context(command, parent, info_name=name, **cli.cli.context_settings)
        _, child, rest = command.resolve_command(ctx, words)
        assert child is not None
        _parse(child, rest, ctx)
        return
    command.make_context(name, list(words), parent=parent)


@pytest.mark.parametrize("path", ALL, ids=id_of)
def test_every_option_says_what_it_does(path: Path) -> None:
    command = ALL[path]
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.opts for one in options if not one.help] == []
    assert command.help


@pytest.mark.parametrize("path", [path for path in ALL if path], ids=id_of)
def test_plural_nouns_are_taken_silently(path: Path) -> None:
    if path[-1].endswith("s") or path[-1] in PLURALS_OF_THEIR_OWN:
        return
    above = GROUPS[path[:-1]]
    ctx = click.Context(above)
    assert above.get_command(ctx, f"{path[-1]}s") is above.get_command(ctx, path[-1])


@pytest.mark.parametrize("path", LEAVES, ids=id_of)
def test_a_misspelt_option_is_told_the_nearest(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*path, "--jsn"]) == 2
    said = capsys.readouterr()
    assert "did you mean '--json'?" in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("path", [path for path in GROUPS if path], ids=id_of)
def test_a_misspelt_command_is_told_the_nearest(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = GROUPS[path].list_commands(click.Context(GROUPS[path]))[0]
    assert cli.run([*path, f"{first[:-1]}"]) == 2
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [path for path in LEAVES if {"delete", "empty", "delete-records"} & set(path)],
    ids=id_of,
)
def test_what_destroys_takes_yes(path: Path) -> None:
    assert {"-y", "--yes"} <= flags(LEAVES[path])


# -- the description for machines ---------------------------------------------------------------


def described() -> Any:
    """As a program reads it."""
    ctx = click.Context(cli.cli, info_name="tidelog", **cli.cli.context_settings)
    return json.loads(json.dumps(describe_all(cli.cli, ctx)))


def test_the_description_holds_the_whole_tree() -> None:
    tree = described()
    assert tree["exit_codes"] == {str(code): text for code, text in EXIT_CODES.items()}
    assert set(EXIT_CODES) == {0, 1, 2, 3, 4, 5, 130}
    assert {path for path, _ in _described(tree)} == set(LEAVES)
    for path, document in _described(tree):
        command = LEAVES[path]
        assert document["examples"] == list(getattr(command, "examples", ()))
        assert document["usage"].startswith(id_of(("tidelog", *path)))
        named = {flag for option in document["options"] for flag in option["flags"]}
        options = {f for one in command.params if isinstance(one, click.Option) for f in one.opts}
        assert named == options | {"-h", "--help"}


def _described(document: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    if "commands" not in document:
        yield path, document
        return
    for child in document["commands"]:
        yield from _described(child, (*path, child["name"]))


def test_an_option_is_described_with_type_bounds_default_and_environment() -> None:
    found = dict(_described(described()))
    options = {one["name"]: one for one in found["topic", "create"]["options"]}
    assert options["partitions"] == {
        "name": "partitions",
        "flags": ["-p", "--partitions"],
        "metavar": None,
        "takes_value": True,
        "required": False,
        "repeatable": False,
        "default": None,
        "environment": [],
        "help": "Default: the cluster's.",
        "type": "integer",
        "min": 1,
        "max": None,
    }
    assert options["bootstrap"]["environment"] == ["TIDELOG_BOOTSTRAP"]
    assert options["cluster"]["default"] == "default"
    assert options["configs"]["repeatable"] is True
    (names,) = found["topic", "create"]["arguments"]
    assert (names["required"], names["repeatable"]) == (True, True)
    acks = next(one for one in found["produce",]["options"] if one["name"] == "acks")
    assert (acks["type"], acks["choices"]) == ("choice", ["0", "1", "all", "-1"])


# -- completion ---------------------------------------------------------------------------------


def test_who_answers_too_late_offers_nothing() -> None:
    never = Event()

    def find() -> list[str]:
        never.wait()
        return ["orders"]

    assert within(0.01, find) == []
    never.set()
    assert within(60, lambda: ["orders"]) == ["orders"]


def test_a_cluster_is_asked_only_for_what_the_start_left_of_the_time() -> None:
    assert patience_s(0.09) == pytest.approx(0.1)
    assert patience_s(5.0) == PATIENCE_S_MIN


def test_no_failure_is_told_while_a_line_is_typed(
    capfd: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argument = LEAVES["topic", "describe"].params[0]
    ctx = click.Context(LEAVES["topic", "describe"])
    for options in ({}, {"bootstrap": "127.0.0.1:1"}, {"bootstrap": "no port:x"}, {"data": "/"}):
        ctx.params = dict(options)
        assert topic_names(ctx, argument, "o") == []
    assert capfd.readouterr() == ("", "")


def test_clusters_of_this_folder_are_offered(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = LEAVES["status",]
    assert cluster_names(click.Context(command), command.params[0], "") == []
    for name in ("east", "west"):
        (tmp_path / ".tidelog" / name).mkdir(parents=True)
        (tmp_path / ".tidelog" / name / "cluster.json").touch()
    (tmp_path / ".tidelog" / "wreck").mkdir()  # of a start that was refused
    assert cluster_names(click.Context(command), command.params[0], "w") == ["west"]


def test_an_unknown_cluster_is_told_the_nearest(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    there = tmp_path / ".tidelog" / "payments"
    there.mkdir(parents=True)
    (there / "cluster.json").touch()
    assert cli.run(["status", "--cluster", "payment"]) == 3
    sentence = f"there is no cluster 'payment' in {there.parent}/payment; did you mean 'payments'?"
    assert sentence in capsys.readouterr().err
