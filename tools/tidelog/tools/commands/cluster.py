"""`tidelog up`, `down` and `status`."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.kernel.config import SettingError
from tidelog.kernel.launch import faults_name
from tidelog.kernel.limits import BROKERS_MAX, DISK_BYTES_MAX, DISK_BYTES_MIN, STANDBYS_MAX
from tidelog.tools.output import (
    CliError,
    Command,
    Target,
    cluster_options,
    counted,
    emit_json,
    json_option,
    json_text,
    note,
    profile_option,
    size,
    table,
)
from tidelog.tools.supervisor.ask import Link, NotRunningError, SaidNoError

if TYPE_CHECKING:
    from tidelog.tools.chaos.sick_disks import Sick
    from tidelog.tools.supervisor.runs import Run

VERSION = 1
_PORT_MAX = 65_535


@contextmanager
def link_to(target: Target) -> Iterator[Link]:
    """A connection to the target's supervisor; its refusals end the command."""
    try:
        link = Link.to(target.folder)
    except NotRunningError as error:
        raise target.not_running() from error
    with link:
        try:
            yield link
        except SaidNoError as error:
            raise CliError(str(error), error.code) from error


# -- up -----------------------------------------------------------------------------------------


def _disk_bytes(text: str) -> int:
    """0 where none are named."""
    from tidelog.tools.supervisor.disks import size_asked  # noqa: PLC0415 -- as below

    found = size_asked(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no kind of disk: loop or loop:256MiB is")
    if found and not DISK_BYTES_MIN <= found <= DISK_BYTES_MAX:
        bounds = f"at least {DISK_BYTES_MIN >> 20}MiB, at most {DISK_BYTES_MAX >> 40}TiB"
        raise click.BadParameter(f"{text!r}: {bounds}")
    return found


class _Terminal:
    """Says how a start goes: the result on standard output, the rest on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def progress(self, text: str) -> None:
        with suppress(OSError):  # nobody reads any more; the cluster lives on
            note(text)

    def ready(self, document: Mapping[str, Any]) -> None:
        with suppress(OSError):
            click.echo("\n".join(_ready_lines(document, as_json=self._as_json)))

    def failed(self, sentence: str, code: int) -> None:
        raise CliError(sentence, code)

    def look(self) -> None:
        """Nothing waits: this one writes at once."""


class _TerminalOfSupervisor:
    """The same, said by the supervisor itself: it never waits for who reads."""

    def __init__(self, *, as_json: bool) -> None:
        from tidelog.tools.supervisor.outlet import Outlet  # noqa: PLC0415 -- `status` needs none of it

        self._as_json = as_json
        self._out = Outlet(sys.stdout.fileno(), sys.stdout.encoding)
        self._err = Outlet(sys.stderr.fileno(), sys.stderr.encoding)

    def progress(self, text: str) -> None:
        self._err.say(text)

    def ready(self, document: Mapping[str, Any]) -> None:
        for line in _ready_lines(document, as_json=self._as_json):
            self._out.say(line)
        if not self._as_json:
            self._out.say("Ctrl-C ends it.")

    def failed(self, sentence: str, code: int) -> None:
        raise CliError(sentence, code)

    def look(self) -> None:
        self._out.flush()
        self._err.flush()


def _ready_lines(document: Mapping[str, Any], *, as_json: bool) -> list[str]:
    if as_json:
        return [json_text(document)]
    count = document["brokers"]
    brokers = f"{count} broker" + ("s" if count > 1 else "")
    return [
        f"cluster {document['cluster']!r}: {brokers}, up in {document['seconds']:.2f} s",
        f"bootstrap: {document['bootstrap']}",
        f"data: {document['data']}",
    ]


@click.command(
    cls=Command,
    examples=(
        "tidelog up",
        "tidelog up --brokers 3 --detach --set num.partitions=6",
        "tidelog up --ephemeral --base-port 0 --set broker.1:max.connections=100",
    ),
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    metavar="N",
    help="How many brokers; as many as the data has, else 3.",
)
@click.option(
    "--base-port",
    type=click.IntRange(0, _PORT_MAX),
    metavar="PORT",
    help="Broker N listens on PORT + N; 0 takes free ports. [default: 9092]",
)
@click.option("--ephemeral", is_flag=True, help="Data in a temporary folder, removed at the end.")
@click.option("-d", "--detach", is_flag=True, help="Return once every broker takes clients.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; broker.1:KEY=VALUE."
)
@click.option("--config", metavar="FILE", envvar="TIDELOG_CONFIG", help="A .toml or .properties.")
@profile_option
@click.option(
    "--disks",
    "disk_bytes",
    type=_disk_bytes,
    metavar="loop[:SIZE]",
    help="A file system for each broker and the coordinators, as 256MiB. [default: 1GiB]",
)
@click.option(
    "--standby-coordinators",
    type=click.IntRange(0, STANDBYS_MAX),
    metavar="N",
    help="How many more coordinators, each ready to take over. [default: 0]",
)
@click.option("--restart", is_flag=True, help="Start brokers again that end by a fault.")
@cluster_options
@json_option
def up(target: Target, *, as_json: bool, ephemeral: bool, detach: bool, **more: Any) -> int:  # noqa: ANN401 -- click's
    """Start a cluster; it lives until Ctrl-C, or with --detach until `tidelog down`.

    Keys are Kafka's names, and ours where Kafka has none. A flag is stronger than TIDELOG_KEY or
    KAFKA_KEY in the environment, that is stronger than a profile, that than the rest of its file
    (tidelog.toml, pyproject.toml or --config), and that than the default.

    --disks is for chaos power-loss --tier 2, and needs root: DATA holds an image for each, which is
    mounted while the cluster runs and must not fill up.
    """
    from tidelog.tools.supervisor import up as starting  # noqa: PLC0415 -- `status` needs none of it
    from tidelog.tools.supervisor.sources import Flags  # noqa: PLC0415 -- as above

    began = starting.now()
    if ephemeral and target.data:
        raise click.UsageError("--ephemeral has a folder of its own: leave --data out")
    flags = Flags(
        settings=more["settings"],
        config=more["config"],
        brokers=more["brokers"],
        base_port=more["base_port"],
        standby_coordinators=more["standby_coordinators"],
        profile=more["profile"],
    )
    try:
        wish = starting.wish(flags, os.environ, Path.cwd())
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    request = starting.Request(
        cluster=target.cluster,
        data=target.folder,
        wish=wish,
        ephemeral=ephemeral,
        restart=more["restart"],
        detached=detach,
        disk_bytes=more["disk_bytes"],
    )
    if detach:
        return starting.detach(request, _Terminal(as_json=as_json), began)
    return starting.start(request, _TerminalOfSupervisor(as_json=as_json), began)


# -- down ---------------------------------------------------------------------------------------


@click.command(cls=Command, examples=("tidelog down", "tidelog down --cluster other --force"))
@click.option("--force", is_flag=True, help="Kill what does not end in 5 s.")
@click.option("--sync", is_flag=True, help="Flush everything to disk first.")
@cluster_options
@json_option
def down(target: Target, *, as_json: bool, force: bool, sync: bool) -> None:
    """End a cluster in order; when this returns, its processes and shared memory are gone."""
    ran = _end(target, force=force, sync=sync)
    if as_json:
        name = target.cluster if ran is None else ran
        emit_json({"version": VERSION, "cluster": name, "was_running": ran is not None})
    elif ran is None:
        note(f"{target.label} was not running")
    else:
        click.echo(f"cluster {ran!r} ended")


def _end(target: Target, *, force: bool, sync: bool) -> str | None:
    """The name of the cluster that ran."""
    from tidelog.tools.supervisor import ending  # noqa: PLC0415 -- `status` needs none of it

    try:
        try:
            link = Link.to(target.folder)
        except NotRunningError:
            return _end_rest(target, force=force)
        with link:
            ending.end(link, force=force, sync=sync, note=note)
            return link.run.cluster
    except SaidNoError as error:
        raise CliError(str(error), error.code) from error


def _end_rest(target: Target, *, force: bool) -> str | None:
    """Of a cluster whose supervisor does not listen; what had to be killed is told."""
    from tidelog.tools.supervisor import ending  # noqa: PLC0415 -- as above
    from tidelog.tools.supervisor.folder import child_in, find, supervisor_in  # noqa: PLC0415 -- as above
    from tidelog.tools.whereabouts import is_there  # noqa: PLC0415 -- as above

    folder = find(target.folder)
    if not is_there(folder) and supervisor_in(folder) is None and child_in(folder) is None:
        raise target.not_running()
    killed = ending.end_rest(folder, force=force)
    for pid in killed:
        note(f"killed process {pid}, which did not end by itself")
    return target.cluster if killed else None


# -- status -------------------------------------------------------------------------------------


@click.command(cls=Command, examples=("tidelog status", "tidelog status --json"))
@cluster_options
@json_option
def status(target: Target, *, as_json: bool) -> None:
    """Show a cluster: its processes as the kernel sees them, its partitions as they report."""
    with link_to(target) as link:
        document = link.ask("status")["status"]
        sick = _sick(link.run)
    document["faults"] = [one.document for one in sick]
    if as_json:
        emit_json(document)
        return
    click.echo(f"cluster    {document['cluster']} ({document['cluster_id']}), {document['state']}")
    click.echo(f"bootstrap  {document['bootstrap']}")
    click.echo(f"data       {document['data']}")
    click.echo(
        f"topics     {document['topics']}, {document['partitions']} partitions: "
        f"{document['under_replicated']} under-replicated, {document['offline']} offline"
    )
    if document.get("not_compacted"):  # the supervisor may be of an earlier version
        click.echo(
            f"compaction fails for {counted(document['not_compacted'], 'replica')}: "
            "tidelog why broker ID names them"
        )
    for one in sick:
        click.echo(f"faults     broker {one.broker}: {one.sentence} (tidelog chaos heal)")
    click.echo()
    columns = (
        "process",
        "pid",
        "state",
        "port",
        "uptime",
        "memory",
        "flush",
        "leaders",
        "replicas",
    )
    table([_row(process) for process in document["processes"]], columns)


def _sick(run: "Run") -> "list[Sick]":
    """Faults that were made on purpose: whoever wonders what is the matter is told."""
    pages = Path(f"/dev/shm{faults_name(run.run_id, None)}*")  # noqa: S108 -- where Linux keeps it
    if not any(pages.parent.glob(pages.name)):
        return []  # most often; and then nothing heavy is imported
    from tidelog.tools.chaos.sick_disks import sick_in  # noqa: PLC0415 -- `up` needs none of it

    return sick_in(run.run_id, run.data_dir)


def _row(process: Mapping[str, Any]) -> tuple[object, ...]:
    numbered = process["role"] in {"broker", "standby"}
    alive = process["pid"] is not None
    return (
        f"{process['role']} {process['id']}" if numbered else process["role"],
        process["pid"],
        process["state"],
        process["port"],
        f"{process['uptime_s']:.0f} s" if alive else None,
        size(process["pss_bytes"]) if alive else None,
        process["flush_policy"],
        process["leaders"],
        process["replicas"],
    )
