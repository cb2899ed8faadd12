"""`tidelog broker`, `coordinator` and `txn-coordinator`: single processes of a running cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

from tidelog.tools.commands.cluster import VERSION, link_to
from tidelog.tools.commands.members import add, remove
from tidelog.tools.output import (
    CliError,
    Command,
    Group,
    Target,
    cluster_options,
    emit_json,
    json_option,
    note,
)
from tidelog.tools.supervisor.ask import SaidNoError

_DONE_WORD = {
    "start": "started",
    "stop": "stopped",
    "restart": "restarted",
    "kill": "killed",
    "pause": "paused",
    "resume": "resumed",
}


@contextmanager
def _telling(*, as_json: bool) -> Iterator[Callable[[str, str, int, int], None]]:
    """What was done, said to a person at once and to a program at the end, be it a refusal."""
    done: list[dict[str, object]] = []

    def told(what: str, role: str, process_id: int, pid: int) -> None:
        done.append({"role": role, "id": process_id, "pid": pid, "did": what})
        if not as_json:
            name = f"{role} {process_id}" if role in {"broker", "standby"} else role
            click.echo(f"{name} {_DONE_WORD[what]} (pid {pid})")

    try:
        yield told
    finally:
        if as_json and done:
            emit_json({"version": VERSION, "processes": done})


def _do(target: Target, what: str, role: str, ids: Sequence[int], *, as_json: bool) -> None:
    """One after the other; the first refusal ends the command."""
    with _telling(as_json=as_json) as told, link_to(target) as link:
        for process_id in ids:
            answer = link.ask(what, role=role, id=process_id)
            told(what, role, process_id, answer["pid"])


def _broker_command(what: str, text: str) -> click.Command:
    @click.command(
        what,
        cls=Command,
        help=text,
        examples=(f"tidelog broker {what} 0", f"tidelog broker {what} 0 1 --json"),
    )
    @click.argument("ids", metavar="ID...", type=click.IntRange(0), nargs=-1, required=True)
    @cluster_options
    @json_option
    def command(target: Target, *, ids: tuple[int, ...], as_json: bool) -> None:
        _do(target, what, "broker", ids, as_json=as_json)

    return command


def _coordinator_command(what: str, text: str) -> click.Command:
    @click.command(
        what,
        cls=Command,
        help=text,
        examples=(f"tidelog coordinator {what}", f"tidelog coordinator {what} --json"),
    )
    @click.option(
        "--standby", type=click.IntRange(0), metavar="ID", help="One that stands by, instead."
    )
    @cluster_options
    @json_option
    def command(target: Target, *, standby: int | None, as_json: bool) -> None:
        role = "coordinator" if standby is None else "standby"
        _do(target, what, role, (standby or 0,), as_json=as_json)

    return command


def _transactions_command(what: str, text: str) -> click.Command:
    @click.command(
        what,
        cls=Command,
        help=text,
        examples=(f"tidelog txn-coordinator {what}", f"tidelog txn-coordinator {what} --json"),
    )
    @cluster_options
    @json_option
    def command(target: Target, *, as_json: bool) -> None:
        _do(target, what, "transaction-coordinator", (0,), as_json=as_json)

    return command


@click.group(
    cls=Group,
    examples=("tidelog broker kill 2", "tidelog broker start 2", "tidelog broker pause 0 1"),
)
def broker() -> None:
    """Add, start, stop, kill or pause brokers; returns when it is so."""


@broker.command(examples=("tidelog broker restart 0", "tidelog broker restart --rolling --json"))
@click.argument("ids", metavar="ID...", type=click.IntRange(0), nargs=-1)
@click.option(
    "--rolling", is_flag=True, help="All brokers, each once every partition is in sync again."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=300.0,
    show_default=True,
    metavar="S",
    help="With --rolling: how long to wait for partitions to be in sync, each time.",
)
@click.option(
    "--rest",
    type=click.FloatRange(0, 3_600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="With --rolling: time for clients to find a broker again before it leads.",
)
@cluster_options
@json_option
def restart(
    target: Target,
    *,
    ids: tuple[int, ...],
    rolling: bool,
    timeout: float,
    rest: float,
    as_json: bool,
) -> None:
    """Stop brokers, where they run, and start them.

    With --rolling clients go on: each broker gives away what it leads before it stops, and leads it
    again when it is back and in sync. What does not come back ends the roll.
    """
    if rolling == bool(ids):
        raise click.UsageError("name the brokers, or all of them with --rolling")
    if rolling:
        _roll(target, timeout, rest, as_json=as_json)
    else:
        _do(target, "restart", "broker", ids, as_json=as_json)


def _roll(target: Target, timeout_s: float, rest_s: float, *, as_json: bool) -> None:
    from tidelog.tools.rolling import Roll  # noqa: PLC0415 -- others need no client

    with _telling(as_json=as_json) as told, link_to(target) as link:
        rows = link.ask("status")["status"]["processes"]
        brokers = [row["id"] for row in rows if row["role"] == "broker"]
        roll = Roll(target, timeout_s=timeout_s, rest_s=rest_s)
        for at, broker_id in enumerate(brokers):
            try:
                roll.wait_in_sync()
                pid = link.ask("restart", role="broker", id=broker_id)["pid"]
            except (SaidNoError, CliError) as refused:
                raise roll.stopped(refused, brokers[at:]) from refused
            told("restart", "broker", broker_id, pid)
            try:
                note(roll.settle(broker_id))
            except CliError as refused:
                raise roll.stopped(refused, brokers[at + 1 :]) from refused


@click.group(cls=Group, examples=("tidelog coordinator kill", "tidelog coordinator pause --json"))
def coordinator() -> None:
    """Kill or pause the coordinator that leads, or one that stands by.

    A dead or silent one is started again by the supervisor; where others stand by, one of them
    leads at once.
    """


@click.group(
    cls=Group, examples=("tidelog txn-coordinator kill", "tidelog txn-coordinator pause --json")
)
def txn_coordinator() -> None:
    """Kill or pause the transaction coordinator.

    A dead or silent one is started again by the supervisor; it reads its log through the brokers,
    and completes what was prepared.
    """


_BROKER_COMMANDS: Mapping[str, str] = {
    "start": "Start brokers that do not run; returns when they take clients.",
    "stop": "End brokers in order (SIGTERM); they stay down until started.",
    "kill": "Kill brokers (SIGKILL); they stay down until started.",
    "pause": "Freeze brokers (SIGSTOP).",
    "resume": "Let paused brokers go on (SIGCONT).",
}
_COORDINATOR_COMMANDS: Mapping[str, str] = {
    "kill": "Kill the coordinator (SIGKILL); it is started again at once.",
    "pause": "Freeze the coordinator (SIGSTOP); after 2 s, with a standby 0.2 s, it is killed.",
    "resume": "Let a paused coordinator go on (SIGCONT).",
}

_TRANSACTIONS_COMMANDS: Mapping[str, str] = {
    "kill": "Kill the transaction coordinator (SIGKILL); it is started again at once.",
    "pause": "Freeze the transaction coordinator (SIGSTOP); after 2 s it is killed.",
    "resume": "Let a paused transaction coordinator go on (SIGCONT).",
}


def _fill(
    group: click.Group, make: Callable[[str, str], click.Command], rows: Mapping[str, str]
) -> None:
    for what, text in rows.items():
        group.add_command(make(what, text))


_fill(broker, _broker_command, _BROKER_COMMANDS)
broker.add_command(add)
broker.add_command(remove)
_fill(coordinator, _coordinator_command, _COORDINATOR_COMMANDS)
_fill(txn_coordinator, _transactions_command, _TRANSACTIONS_COMMANDS)
