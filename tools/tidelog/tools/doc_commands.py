"""docs/commands.md, made from the commands themselves: what `--help-json` says, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from tidelog.tools.cli import cli
from tidelog.tools.describing import EXIT_CODES, describe_all

PAGE = """{made}
# Commands

Each command has `--help`; `tidelog --help-json` describes all of them for programs. How they are
used, with what they print, stands in [how-to.md](how-to.md).

## What holds for all

- Nouns are singular; plural forms are taken silently (`tidelog topics list`).
- `--json` prints one document on a line, or one object a line where something goes on; remarks,
  warnings and errors go to standard error.
- Tables are drawn on a terminal and plain elsewhere; `NO_COLOR` is honoured; progress is shown on a
  terminal only.
- An error is one sentence: what is wrong, and what to do. `--debug`, anywhere, adds the traceback.
- What destroys asks on a terminal, and needs `--yes` elsewhere.
- Offsets are written `start`, `end`, `123`, `-10` (from the end), `@2026-01-31T12:00` (UTC) or
  `@-1h`, or as two of them: `@-30m:@now`.
- A SIZE is written `1000000` or with one of B, k, kB, KB, M, MB (thousands and millions), KiB, MiB,
  GiB and TiB: `500kB`, `64 KiB`. So is BYTES/s, where `/s` may be left out: `2MiB/s`.

| exit code | meaning |
| --- | --- |
{codes}

If the folder that was looked in holds no cluster, every command exits 3. If its cluster is stopped,
or its supervisor cannot be reached, commands that need it exit 4; `down` of a stopped one exits 0.

These options are not repeated below. The first two are of all commands that have to do with a
cluster, the third of those that speak Kafka's protocol: they work on any Kafka cluster.

{common}

{commands}
"""
COMMON = ("cluster", "data", "bootstrap", "as_json", "help")


def commands_page(made: str) -> str:
    """Every command with its examples and its options."""
    ctx = click.Context(cli, info_name="tidelog", **cli.context_settings)
    tree: Mapping[str, Any] = describe_all(cli, ctx)
    leaves = dict(_leaves(tree))
    known = {one["name"]: one for leaf in leaves.values() for one in leaf["options"]}
    return PAGE.format(
        made=made,
        codes="\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
        common=_options([known[name] for name in COMMON]),
        commands="\n\n".join(_section(name, leaf) for name, leaf in leaves.items()),
    )


def _leaves(
    document: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    name = f"{above} {document['name']}".strip()
    if "commands" not in document:
        yield name, document
        return
    for child in document["commands"]:
        yield from _leaves(child, name)


def _section(name: str, leaf: Mapping[str, Any]) -> str:
    examples = "\n".join(leaf["examples"])
    own = [one for one in leaf["options"] if one["name"] not in COMMON]
    parts = [
        f"## {name}",
        leaf["help"],
        f"```text\n{leaf['usage']}\n```",
        f"```sh\n{examples}\n```",
    ]
    return "\n\n".join([*parts, *([_options(own)] if own else [])])


def _options(options: Sequence[Mapping[str, Any]]) -> str:
    rows = [_row(one) for one in options]
    return "\n".join(["| option | default | what it does |", "| --- | --- | --- |", *rows])


def _row(one: Mapping[str, Any]) -> str:
    value = f" {_value(one)}" if one["takes_value"] else ""
    *others, last = one["flags"]
    flags = ", ".join(f"`{flag}`" for flag in [*others, f"{last}{value}"])
    variables = "".join(f" Also `{name}` in the environment." for name in one["environment"])
    repeat = " May be repeated." if one["repeatable"] else ""
    default = one["default"]
    shown = f"`{default}`" if one["takes_value"] and default not in {None, ""} else ""
    help_text = f"{one['help']}{repeat}{variables}".replace("|", "\\|")
    return f"| {flags.replace('|', chr(92) + '|')} | {shown} | {help_text} |"


def _value(one: Mapping[str, Any]) -> str:
    if one["metavar"]:
        return str(one["metavar"])
    if "choices" in one:
        return "|".join(one["choices"])
    return {"integer": "N", "number": "S"}.get(one["type"], "TEXT")
