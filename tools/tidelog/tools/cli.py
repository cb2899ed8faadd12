"""The command `tidelog`: finds the command asked for and imports no other; owns the exit codes."""

import contextlib
import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tidelog.tools.completing import COMPLETION_VARIABLE
from tidelog.tools.output import (
    DONE,
    FAILED,
    INTERRUPTED,
    UNREACHABLE,
    WRONG_USAGE,
    CliError,
    Group,
    nearest,
)

COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "up": ("cluster", "up", "Start a cluster."),
    "down": ("cluster", "down", "End a cluster."),
    "status": ("cluster", "status", "Show a cluster's processes."),
    "cluster": ("clusters", "cluster", "List clusters, and delete the data of a stopped one."),
    "broker": ("processes", "broker", "Add, start, stop, kill or pause brokers."),
    "coordinator": ("processes", "coordinator", "Kill or pause the coordinator."),
    "txn-coordinator": (
        "processes",
        "txn_coordinator",
        "Kill or pause the transaction coordinator.",
    ),
    "logs": ("logs", "logs", "Show what the processes say."),
    "wait": ("wait", "wait", "Wait until something is really so."),
    "topic": ("topics", "topic", "Create, list, describe, change and delete topics."),
    "partition": ("partition", "partition", "Move replicas to other brokers."),
    "leader": ("leader", "leader", "Have leaders of partitions elected anew."),
    "group": ("groups", "group", "List, describe, delete and move consumer groups."),
    "txn": ("transactions", "txn", "List, describe and end transactions, and find hanging ones."),
    "config": ("config", "config", "Show and change settings of topics, brokers and groups."),
    "produce": ("produce", "produce", "Write lines of standard input into a topic."),
    "consume": ("consume", "consume", "Read records from topics."),
    "log": ("log_files", "log", "Show and check the files of logs."),
    "disk": ("disk", "disk", "Show what of the logs is cached, dirty and not flushed."),
    "metrics": ("metrics", "metrics", "Print or serve a cluster's metrics, for Prometheus."),
    "chaos": ("chaos", "chaos", "Break a running cluster on purpose."),
    "why": ("why", "why", "Say why something is as it is, and what to do."),
    "timeline": ("timeline", "timeline", "Show what happened to a partition."),
    "pipeline": ("pipeline", "pipeline", "Run programs on Spark: load, copies, checks, figures."),
    "completion": ("completion", "completion", "Print the shell's completion script."),
}
"""Module, function, and the line `tidelog --help` shows without importing the module."""
_AFTER_COMMANDS = frozenset(
    {"--cluster", "--data", "-b", "--bootstrap", "--bootstrap-server", "--json"}
)
_AFTER_EXAMPLE = "tidelog status --cluster NAME"
_WORDS = (
    ("is not a valid integer range", "is not a whole number"),
    ("is not a valid float range", "is not a number"),
)


class LazyGroup(Group):
    """Imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        for name in (cmd_name, cmd_name.removesuffix("s")):
            if name in COMMANDS:
                module, attribute, _ = COMMANDS[name]
                found = getattr(
                    importlib.import_module(f"tidelog.tools.commands.{module}"), attribute
                )
                assert isinstance(found, click.Command)
                return found
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[2]) for name, row in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 -- click's signature
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version  # noqa: PLC0415 -- 20 ms that only --version pays

        click.echo(f"tidelog {version('tidelog')}")
        ctx.exit()


def _print_tree(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 -- click's signature
    if wanted and not ctx.resilient_parsing:
        from tidelog.tools.describing import describe_all  # noqa: PLC0415 -- only this needs it

        click.echo(json.dumps(describe_all(ctx.command, ctx), ensure_ascii=False))
        ctx.exit()


@click.group(
    "tidelog",
    cls=LazyGroup,
    examples=(
        "tidelog up",
        "tidelog topic create orders -p 6",
        "seq 100 | tidelog produce orders",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option(
    "--help-json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_tree,
    help="Describe all commands for machines.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error; works everywhere.")
def cli(debug: bool) -> None:  # noqa: FBT001 -- click's signature
    """A real cluster of brokers that speaks the Kafka protocol, on this machine."""
    assert not debug, "main takes it out of the arguments"


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show, it shows escaped
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_what_is_closed() -> None:
    """As after `>&-`; or the next socket would take the stream's number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 -- for the whole process


def run(arguments: list[str]) -> int:
    """The exit code; every way to fail has said its sentence."""
    debug = "--debug" in arguments
    words = [argument for argument in arguments if argument != "--debug"]
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        result = cli.main(words, prog_name="tidelog", standalone_mode=False, color=colour)
        sys.stdout.flush()
    except SystemExit:
        if COMPLETION_VARIABLE in os.environ:
            raise
        # click ends so, without a word, where a pipe broke before it could tell us.
        return _reader_left()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return WRONG_USAGE
    except BrokenPipeError:
        return _reader_left()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the edge: everything becomes a sentence and a code
        return _failed(error, debug=debug)
    return result if isinstance(result, int) else DONE


def _failed(error: Exception, *, debug: bool) -> int:
    sentence, code = _told(error)
    with contextlib.suppress(OSError):  # nobody reads that either
        if debug:
            traceback.print_exc()
        click.echo(f"error: {' '.join(sentence.split())}", err=True)
    if isinstance(error, OSError):
        _reader_left()  # what could not be written now cannot be at the end of the process
    return code


def _told(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "tidelog"
        sentence = _usage_sentence(error)
        # Who is told what was meant needs no page of help.
        return sentence if sentence.endswith("?") else f"{sentence}; see {path} --help", WRONG_USAGE
    if isinstance(error, CliError):
        return error.format_message(), error.code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    known = _client_failure(error)
    if known is not None:
        return str(error), known
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror.lower()}", FAILED
    kind = type(error).__name__
    return f"this is a bug: {kind}: {error}; --debug shows where", FAILED


def _usage_sentence(error: click.UsageError) -> str:
    """In our words where click's differ from version to version."""
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error)
    sentence = error.format_message().rstrip(".")
    for theirs, ours in _WORDS:
        sentence = sentence.replace(theirs, ours)
    return sentence


def _no_such_option(error: click.NoSuchOption) -> str:
    if isinstance(error.ctx and error.ctx.command, click.Group) and (
        error.option_name in _AFTER_COMMANDS
    ):
        return f"{error.option_name} belongs behind the command, as in {_AFTER_EXAMPLE}"
    return f"there is no option {error.option_name!r}{nearest(error.option_name, _options(error))}"


def _options(error: click.NoSuchOption) -> list[str]:
    if error.ctx is None:
        return []
    return [opt for p in error.ctx.command.get_params(error.ctx) for opt in p.opts]


def _client_failure(error: Exception) -> int | None:
    """The exit code of what our clients raise, where they are loaded at all."""
    failures: Any = sys.modules.get("tidelog.clients.failures")
    if failures is not None and isinstance(error, failures.ClientError):
        unreachable = (failures.UnreachableError, failures.TimedOutError)
        return UNREACHABLE if isinstance(error, unreachable) else FAILED
    errors: Any = sys.modules.get("tidelog.wire.errors")
    if errors is not None and isinstance(error, errors.Rejected):
        return FAILED
    return None


def _reader_left() -> int:
    """As in `tidelog consume t | head`: what was asked for has been done."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
