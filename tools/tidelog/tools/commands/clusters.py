"""`tidelog cluster`: which clusters this user has, and an end to the data of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from tidelog.node.runtime.lives import identity
from tidelog.tools.completing import clusters
from tidelog.tools.output import (
    NOT_FOUND,
    CliError,
    Group,
    Target,
    confirm,
    emit_json,
    json_option,
    nearest,
    table,
    yes_option,
)
from tidelog.tools.supervisor import registry, runs
from tidelog.tools.supervisor.folder import is_held
from tidelog.tools.supervisor.runs import Run, State

VERSION = 1
STOPPED = "stopped"


class Row(Struct, frozen=True):
    """One cluster."""

    name: str
    state: str
    pid: int | None
    bootstrap: str
    data: str
    ephemeral: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {
            "cluster": self.name,
            "data": self.data,
            "state": self.state,
            "pid": self.pid,
            "bootstrap": self.bootstrap,
            "ephemeral": self.ephemeral,
        }


@click.group(
    "cluster",
    cls=Group,
    examples=("tidelog cluster list", "tidelog cluster delete trial --yes"),
)
def cluster() -> None:
    """List this user's clusters, and delete the data of a stopped one."""


# -- list ---------------------------------------------------------------------------------------


@cluster.command("list", examples=("tidelog cluster list", "tidelog cluster list --json"))
@json_option
def list_clusters(*, as_json: bool) -> None:
    """List the clusters of this user: those that run, wherever they were started, and the stopped
    ones whose folder is known or lies under the current one.

    A cluster in the current folder is named by --cluster, any other by --data and its folder. One
    whose state is unknown may run in another container; what it has left is not removed.
    """
    rows = gather()
    if as_json:
        emit_json({"version": VERSION, "clusters": [row.document for row in rows]})
        return
    columns = ("name", "state", "pid", "addresses", "folder")
    table([(r.name, r.state, r.pid, addresses(r.bootstrap), r.data) for r in rows], columns)


def gather() -> list[Row]:
    """The running ones first."""
    alive = [(run, state) for run, state in runs.living() if _is_whole(run, state)]
    # One run has a folder at a time: of those that may have it, the one that is known to live.
    alive.sort(key=lambda pair: pair[1] is State.UNKNOWN)
    by_folder: dict[tuple[int, int], Row] = {}
    for run, state in alive:
        by_folder.setdefault(run.folder, _of_run(run, state))
    taken, rows = set(by_folder), list(by_folder.values())
    for name, data in _resting():
        here = identity(data)
        if here not in taken and not is_held(data):
            taken.add(here)
            rows.append(Row(name, STOPPED, None, "", str(data)))
    return rows


def _is_whole(run: Run, state: State) -> bool:
    """Of a run in another container only what it left may be there, and another may have its folder
    by now."""
    return state is not State.UNKNOWN or identity(run.data_dir) == run.folder


def _of_run(run: Run, state: State) -> Row:
    is_ours = run.life is not None and run.life.is_counted_here()
    return Row(
        name=run.cluster,
        state=state.value,
        pid=run.pid if is_ours and state is State.RUNNING else None,
        bootstrap=run.bootstrap,
        data=run.data_dir,
        ephemeral=run.origin is not None,
    )


def _resting() -> list[tuple[str, Path]]:
    """Folders of clusters, most of which do not run."""
    known = [(one.cluster, Path(one.data_dir)) for one in registry.stopped()]
    here = [(name, Target(name).folder) for name in clusters()]
    return sorted({*known, *here})


def addresses(bootstrap: str) -> str:
    """Short enough for a table: ports of one host that follow each other are a range.

    >>> addresses("127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9101")
    '127.0.0.1:9092-9094,9101'
    >>> addresses("127.0.0.1:9092"), addresses("")
    ('127.0.0.1:9092', '')
    """
    by_host: dict[str, list[int]] = {}
    for one in bootstrap.split(",") if bootstrap else []:
        host, _, port = one.rpartition(":")
        by_host.setdefault(host, []).append(int(port))
    return ",".join(f"{host}:{_ranges(ports)}" for host, ports in by_host.items())


def _ranges(ports: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for port in sorted(ports):
        if ranges and ranges[-1][-1] == port - 1:
            ranges[-1].append(port)
        else:
            ranges.append([port])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)


# -- delete -------------------------------------------------------------------------------------


@cluster.command(
    "delete",
    examples=(
        "tidelog cluster delete trial",
        "tidelog cluster delete trial --yes",
        "tidelog cluster delete --data /srv/harbour --yes",
    ),
)
@click.argument(
    "name", required=False, shell_complete=lambda _ctx, _parameter, begun: _offered(begun)
)
@click.option("--data", metavar="DIR", help="The folder of its data, if it is not ./.tidelog/NAME.")
@yes_option
@json_option
def delete(*, name: str | None, data: str | None, yes: bool, as_json: bool) -> None:
    """Delete the data of a stopped cluster: all its topics, records, groups and logs.

    A running cluster is refused. Log directories that log.dirs puts elsewhere are not deleted; they
    are named.
    """
    if (name is None) == (data is None):
        raise click.UsageError("name one cluster, or its folder with --data")
    target = Target.named(name, data)
    folder = _deletable(target)
    confirm(f"all data of the {target.label} ({folder})", yes=yes)
    from tidelog.tools.supervisor import deleting  # noqa: PLC0415 -- `list` needs none of it

    try:
        left = deleting.delete(folder)
    except deleting.HeldError as error:
        raise _running(target, folder) from error
    if as_json:
        document = {"cluster": name, "data": str(folder), "left": left}
        emit_json({"version": VERSION, **document})
        return
    click.echo(f"deleted {folder}")
    for path in left:
        click.echo(f"left in place, as log.dirs names it: {path}")


def _offered(begun: str) -> list[str]:
    return [name for name in clusters() if name.startswith(begun)]


def _deletable(target: Target) -> Path:
    """The command ends where no stopped cluster is."""
    from tidelog.tools.whereabouts import is_there  # noqa: PLC0415 -- as above

    folder = target.folder
    if is_held(folder):
        raise _running(target, folder)
    if not is_there(folder):
        raise _missing(target, folder)
    return folder


def _missing(target: Target, folder: Path) -> CliError:
    from tidelog.tools.whereabouts import elsewhere  # noqa: PLC0415 -- as above

    others = [one.data_dir for one in registry.stopped() if one.cluster == target.cluster]
    if others and not target.data:
        return CliError(
            f"there is no {target.label} in {folder}: one of that name is in {others[0]}, "
            "name it with --data",
            NOT_FOUND,
        )
    hint = "" if target.data else nearest(target.cluster, clusters())
    hint = hint or ": name one with --data, as tidelog cluster list shows it"
    where = "" if target.data else f" in {folder}"
    return CliError(f"there is no {target.label}{where}{hint}{elsewhere(folder)}", NOT_FOUND)


def _running(target: Target, folder: Path) -> CliError:
    named = target.label if target.data else f"{target.label} in {folder}"
    return CliError(f"{named} is running: end it first with tidelog down{target.words}")
