"""`tidelog wait`: returns when it is really so, for scripts and fixtures that must not sleep."""

import time

import click

from tidelog.tools.output import (
    UNREACHABLE,
    Group,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
)
from tidelog.tools.supervisor.ask import Link, NotRunningError, SaidNoError

_TRY_EVERY_S = 0.02


@click.group(cls=Group, examples=("tidelog wait ready --timeout 10",))
def wait() -> None:
    """Wait until something is really so."""


@wait.command(examples=("tidelog up --detach & tidelog wait ready", "tidelog wait ready --json"))
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Give up after so many seconds.",
)
@cluster_options
@json_option
def ready(target: Target, *, timeout: float, as_json: bool) -> None:
    """Wait until every broker takes clients and the controller is active."""
    deadline = time.monotonic() + timeout
    while True:
        status = _status_when_ready(target, deadline)
        if status is not None:
            break
        if time.monotonic() >= deadline:
            fail(target.not_running(), UNREACHABLE)
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
