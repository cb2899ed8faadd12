"""`--help-json`: every command, argument and option, for programs that write command lines."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import click

from tidelog.tools.output import (
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_FOUND,
    UNREACHABLE,
    VIOLATION,
    WRONG_USAGE,
)

VERSION: Final = 1
EXIT_CODES: Final[Mapping[int, str]] = {
    DONE: "done",
    FAILED: "the thing asked for failed",
    WRONG_USAGE: "wrong usage",
    NOT_FOUND: "not found",
    UNREACHABLE: "unreachable or timed out",
    VIOLATION: "a check found a violation: data lost, duplicated, corrupt",
    INTERRUPTED: "interrupted",
}
_KINDS: Final[Mapping[str, str]] = {
    "integer": "integer",
    "integer range": "integer",
    "float": "number",
    "float range": "number",
    "boolean": "boolean",
    "choice": "choice",
    "text": "text",
}


def describe_all(root: click.Command, ctx: click.Context) -> dict[str, object]:
    """The whole tree, and what holds for all of it."""
    return {
        "version": VERSION,
        "exit_codes": {str(code): meaning for code, meaning in EXIT_CODES.items()},
        **describe(root, ctx),
    }


def describe(command: click.Command, ctx: click.Context) -> dict[str, object]:
    """A command and all below it."""
    parameters = command.get_params(ctx)
    document: dict[str, object] = {
        "name": ctx.info_name,
        "usage": " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]),
        "summary": command.get_short_help_str(200),
        "help": " ".join((command.help or "").split()),
        "examples": list(getattr(command, "examples", ())),
        "arguments": [_argument(one) for one in parameters if isinstance(one, click.Argument)],
        "options": [_option(one, ctx) for one in parameters if isinstance(one, click.Option)],
    }
    if isinstance(command, click.Group):
        document["commands"] = [
            describe(child, click.Context(child, info_name=name, parent=ctx))
            for name in command.list_commands(ctx)
            if (child := command.get_command(ctx, name)) is not None
        ]
    return document


def _argument(argument: click.Argument) -> dict[str, object]:
    return {
        "name": argument.name,
        "metavar": argument.metavar or (argument.name or "").upper(),
        "required": argument.required,
        "repeatable": argument.nargs == -1,
        **_type(argument),
    }


def _option(option: click.Option, ctx: click.Context) -> dict[str, object]:
    return {
        "name": option.name if option.name != "_click_default_help" else "help",
        # Sorted, since older clicks give those of --help in another order each time.
        "flags": sorted([*option.opts, *option.secondary_opts], key=len),
        "metavar": None if option.is_flag else option.metavar,
        "takes_value": not option.is_flag,
        "required": option.required,
        "repeatable": option.multiple,
        "default": _plain(option.get_default(ctx)),
        "environment": _environment(option.envvar),
        "help": option.help,
        **_type(option),
    }


def _type(parameter: click.Parameter) -> dict[str, object]:
    kind = parameter.type
    found: dict[str, object] = {"type": _KINDS.get(kind.name, "text")}
    if isinstance(kind, click.Choice):
        found["choices"] = list(map(str, kind.choices))
    # The ranges are two classes of one mixin that click does not export.
    if isinstance(kind, click.IntRange | click.FloatRange):
        found["min"], found["max"] = kind.min, kind.max
    return found


def _environment(names: Any) -> list[str]:  # noqa: ANN401 -- click takes one name or several
    return [names] if isinstance(names, str) else list(names or ())


def _plain(value: Any) -> object:  # noqa: ANN401 -- whatever a default may be
    match value:
        case bool() | int() | float() | str():
            return value
        case Enum() | None:
            return None  # click's word for "none was given" is an enum's member
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return str(value)
