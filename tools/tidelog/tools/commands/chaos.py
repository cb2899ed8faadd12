"""`tidelog chaos`: one fault, by hand."""

import random
from collections.abc import Callable
from pathlib import Path

import click

from tidelog.tools.chaos.losing import (
    Lost,
    UnknownError,
    Victim,
    broker_victim,
    coordinator_victim,
    look,
    lose,
    shown_path,
)
from tidelog.tools.commands.chaos_corrupt import corrupt
from tidelog.tools.commands.chaos_disks import (
    chaos_status,
    full_disk,
    heal_disks,
    io_error,
    slow_disk,
)
from tidelog.tools.commands.cluster import VERSION, link_to
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Group,
    Target,
    cluster_options,
    counted,
    emit_json,
    fail,
    json_option,
    note,
    table,
)
from tidelog.tools.supervisor.ask import Link
from tidelog.tools.supervisor.folder import Cluster, read_cluster

_SEEDS = 1 << 32
_COLUMNS = ("FILE", "WHAT", "BYTES", "STABLE", "LEFT", "TORN PAGES")
_WORDS = {
    "bytes": "bytes lost",
    "gone": "gone",
    "back": "back again",
    "old file": "old file back",
}


@click.group(
    cls=Group,
    examples=(
        "tidelog chaos power-loss 1",
        "tidelog chaos corrupt orders:0 --seed 42",
        "tidelog chaos io-error 1 --on fsync --once",
    ),
)
def chaos() -> None:
    """Break a running cluster on purpose; what is drawn, is drawn by a seed that repeats it."""


for _command in (chaos_status, corrupt, full_disk, heal_disks, io_error, slow_disk):
    chaos.add_command(_command)


@chaos.command(
    "power-loss",
    cls=Command,
    examples=(
        "tidelog chaos power-loss 1",
        "tidelog chaos power-loss 0 2 --seed 42",
        "tidelog chaos power-loss --all --dry-run --json",
    ),
)
@click.argument("ids", metavar="[BROKER...]", type=click.IntRange(0), nargs=-1)
@click.option(
    "--all", "everyone", is_flag=True, help="The whole machine: all brokers and coordinators."
)
@click.option(
    "--seed",
    type=click.IntRange(0, _SEEDS - 1),
    metavar="N",
    help="What of the unsynced is left; the same files and seed leave the same.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be lost now.")
@cluster_options
@json_option
def power_loss(
    target: Target,
    *,
    ids: tuple[int, ...],
    everyone: bool,
    seed: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take the power from brokers, or from the whole machine.

    They are killed, and their files are made what a power loss could have left of them: what was
    synced stays, of all that came later each 4 KiB page is there, torn or gone, by the seed, and
    files may be missing, back again or called as before. Brokers stay down until they are started;
    coordinators come back by themselves.
    """
    if bool(ids) == everyone:
        raise click.UsageError("name the brokers, or all of them with --all")
    drawn = random.randrange(_SEEDS) if seed is None else seed  # noqa: S311 -- no secret
    with link_to(target) as link:
        data = link.run.data_dir
        victims = _victims(read_cluster(Path(data)), data, ids)
        try:
            lost = _lose(link, victims, everyone=everyone, seed=drawn, dry=dry_run)
        except UnknownError as error:
            fail(str(error))
    _show(lost, data, drawn, dry=dry_run, as_json=as_json)


def _victims(cluster: Cluster, data: str, ids: tuple[int, ...]) -> list[Victim]:
    """All of them where none is named."""
    for broker in ids:
        if broker not in cluster.brokers:
            there = ", ".join(map(str, cluster.brokers))
            fail(f"there is no broker {broker}: the brokers are {there}", NOT_FOUND)
    found = [
        broker_victim(
            data, broker, {**cluster.settings, **cluster.broker_settings.get(str(broker), {})}
        )
        for broker in dict.fromkeys(ids or cluster.brokers)
    ]
    return found if ids else [*found, coordinator_victim(data)]


def _lose(link: Link, victims: list[Victim], *, everyone: bool, seed: int, dry: bool) -> list[Lost]:
    run = link.run
    for victim in victims:
        look(run.run_id, victim)  # before anybody is killed
    if dry:
        return lose(run.run_id, run.data_dir, victims, seed, dry=True)
    ids = [victim.process_id for victim in victims if victim.role == "broker"]
    link.ask("power-loss", ids=ids, all=everyone)
    try:
        return lose(run.run_id, run.data_dir, victims, seed)
    finally:
        link.ask("power-back")


def _show(lost: list[Lost], data: str, seed: int, *, dry: bool, as_json: bool) -> None:
    shown = shown_path(data)
    if as_json:
        processes = [_document(one, shown) for one in lost]
        emit_json({"version": VERSION, "seed": seed, "dry_run": dry, "processes": processes})
        return
    for one in lost:
        _say(one, seed, dry=dry)
    rows = [
        (shown(row.path), _WORDS[row.what], row.size, row.stable, row.left, row.torn_pages)
        for one in lost
        for row in one.rows
    ]
    if rows:
        table(rows, _COLUMNS)


def _say(one: Lost, seed: int, *, dry: bool) -> None:
    role, process_id = one.victim.role, one.victim.process_id
    name = f"{role} {process_id}" if role == "broker" else role
    word = "would lose" if dry else "lost"
    changed = f"{len(one.rows)} of {counted(one.files, 'file')} changed"
    click.echo(f"{name} {word} power: {changed} (--seed {seed})")
    if one.is_full:
        note("its ledger has no room for every file; those count as lost: see tidelog logs")


def _document(one: Lost, shown: Callable[[str], str]) -> dict[str, object]:
    return {
        "role": one.victim.role,
        "id": one.victim.process_id,
        "files": one.files,
        "ledger_full": one.is_full,
        "lost": [
            {
                "file": shown(row.path),
                "what": row.what,
                "bytes": row.size,
                "stable": row.stable,
                "left": row.left,
                "torn_pages": row.torn_pages,
            }
            for row in one.rows
        ],
    }
