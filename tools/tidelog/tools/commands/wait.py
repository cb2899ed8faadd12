"""`tidelog wait`: returns when it is really so, for scripts and fixtures that must not sleep."""

import time

import click

from tidelog.tools.completing import topic_names
from tidelog.tools.output import (
    UNREACHABLE,
    Group,
    Target,
    bootstrap_options,
    emit_json,
    fail,
    json_option,
)
from tidelog.tools.supervisor.ask import Link, NotRunningError, SaidNoError

VERSION = 1
_TRY_EVERY_S = 0.02

_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Give up after so many seconds.",
)


@click.group(
    cls=Group, examples=("tidelog wait ready --timeout 10", "tidelog wait isr orders --json")
)
def wait() -> None:
    """Wait until something is really so."""


# -- ready --------------------------------------------------------------------------------------


@wait.command(examples=("tidelog up --detach & tidelog wait ready", "tidelog wait ready --json"))
@_timeout_option
@bootstrap_options
@json_option
def ready(target: Target, *, timeout: float, as_json: bool) -> None:
    """Wait until every broker takes clients and the controller is active.

    Of another cluster, named by --bootstrap: until it answers and knows its controller.
    """
    deadline = time.monotonic() + timeout
    if target.bootstrap:
        _other_is_ready(target, deadline, as_json=as_json)
        return
    while True:
        status = _status_when_ready(target, deadline)
        if status is not None:
            break
        if time.monotonic() >= deadline:
            fail(f"not ready within {timeout:g} s: {target.not_running()}", UNREACHABLE)
        time.sleep(_TRY_EVERY_S)
    if as_json:
        emit_json(status)
    else:
        click.echo(f"ready: {status['bootstrap']}")


def _status_when_ready(target: Target, deadline: float) -> dict[str, str] | None:
    """None while nobody is there to ask."""
    try:
        link = Link.to(target.folder)
    except NotRunningError:
        return None
    with link:
        try:
            left = max(0.0, deadline - time.monotonic())
            status: dict[str, str] = link.ask("wait", timeout_s=left)["status"]
        except SaidNoError as error:
            fail(str(error), error.code)
    return status


def _other_is_ready(target: Target, deadline: float, *, as_json: bool) -> None:
    from tidelog.tools import waiting  # noqa: PLC0415 -- `wait ready` of our own needs no client

    brokers = waiting.until_reachable(target, deadline)
    if as_json:
        emit_json({"version": VERSION, "bootstrap": target.bootstrap, "brokers": brokers})
    else:
        click.echo(f"ready: {target.bootstrap}, brokers {', '.join(map(str, brokers))}")


# -- isr ----------------------------------------------------------------------------------------


@wait.command(examples=("tidelog wait isr orders", "tidelog wait isr orders audit --timeout 60"))
@click.argument("names", metavar="TOPIC…", nargs=-1, required=True, shell_complete=topic_names)
@_timeout_option
@bootstrap_options
@json_option
def isr(target: Target, names: tuple[str, ...], *, timeout: float, as_json: bool) -> None:
    """Wait until every partition has a leader and all of its replicas are in sync."""
    from tidelog.tools import waiting  # noqa: PLC0415 -- as above

    partitions = waiting.until_in_sync(target, names, timeout)
    if as_json:
        topics = [{"name": name, "partitions": count} for name, count in partitions.items()]
        emit_json({"version": VERSION, "topics": topics})
    else:
        for name, count in partitions.items():
            click.echo(f"in sync: {name}, partitions {count}")


# -- stable -------------------------------------------------------------------------------------


@wait.command(
    examples=("tidelog wait stable billing", "tidelog wait stable billing --timeout 60 --json")
)
@click.argument("group")
@_timeout_option
@bootstrap_options
@json_option
def stable(target: Target, group: str, *, timeout: float, as_json: bool) -> None:
    """Wait until a group has members, and each of them has what it shall have."""
    from tidelog.tools import waiting  # noqa: PLC0415 -- as above

    found = waiting.until_stable(target, group, timeout)
    members = len(found.members)
    if as_json:
        emit_json({"version": VERSION, "group": group, "type": found.kind, "members": members})
    else:
        click.echo(f"stable: {group}, members {members}")
