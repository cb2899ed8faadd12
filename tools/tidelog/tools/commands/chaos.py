"""`tidelog chaos`: one fault, by hand."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidelog.kernel.failures import CannotStartError
from tidelog.tools.chaos.kernel_loss import losable, lose_cached
from tidelog.tools.chaos.losing import (
    Lost,
    UnknownError,
    Victim,
    broker_victim,
    coordinator_victim,
    look,
    lose,
    shown_path,
    wait_for_workers,
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
    VIOLATION,
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
from tidelog.tools.supervisor.disks import disk_of, lacking, this_machine
from tidelog.tools.supervisor.folder import Cluster, read_cluster
from tidelog.tools.supervisor.proc import mount_namespace

_DRAWN, _KERNELS = "0", "2"
_SEEDS = 1 << 32
_COLUMNS = ("FILE", "WHAT", "BYTES", "STABLE", "LEFT", "TORN PAGES")
_WINDOWS = ("PROCESS", "PARTITION", "END", "DURABLE OFFSET", "LEFT", "RECORDS LOST")
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
        "tidelog chaos power-loss 0 2 --seed 42 --dry-run --json",
        "tidelog chaos power-loss --all --tier 2",
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
@click.option(
    "--tier",
    type=click.Choice([_DRAWN, _KERNELS]),
    default=_DRAWN,
    show_default=True,
    help="0: drawn, for any user; 2: the kernel's own loss, of a cluster that has --disks.",
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
    **more: Any,  # noqa: ANN401 -- click's
) -> int:
    """Take the power from brokers, or from the whole machine.

    They are killed, and their files are made what a power loss could have left of them: what was
    synced stays, of all that came later each 4 KiB page is there, torn or gone, by the seed, and
    files may be missing, back again or called as before. Brokers stay down until they are started;
    coordinators come back by themselves.

    With --tier 2 nothing is drawn: their file systems forget all that the kernel had not written to
    them. That needs root, and a cluster that was started with up --disks.
    """
    if bool(ids) == everyone:
        raise click.UsageError("name the brokers, or all of them with --all")
    dry, tier = more["dry_run"], more["tier"]
    if tier == _KERNELS and seed is not None:
        raise click.UsageError("--tier 2 draws nothing, the kernel decides: leave --seed out")
    if tier == _DRAWN and seed is None:
        seed = random.randrange(_SEEDS)  # noqa: S311 -- no secret
    with link_to(target) as link:
        data = link.run.data_dir
        cluster = read_cluster(Path(data))
        victims = _victims(cluster, data, ids)
        if seed is None:
            _need_disks(link, cluster, victims)
        try:
            lost = _lose(link, victims, everyone=everyone, seed=seed, dry=dry)
        except (UnknownError, CannotStartError) as error:
            fail(str(error))
    _show(lost, data, seed, dry=dry, as_json=more["as_json"])
    return VIOLATION if any(one.broken for one in lost) else 0


def _need_disks(link: Link, cluster: Cluster, victims: list[Victim]) -> None:
    """Never another file system than those that `up --disks` has made."""
    drawn = "or leave --tier out: what is lost is then drawn, which needs none of it"
    if not cluster.disk_bytes:
        fail(f"--tier 2 needs a cluster that was started with up --disks loop: do so, {drawn}")
    missing = lacking(this_machine())
    if missing is not None:
        fail(missing)
    if mount_namespace(link.pid) != mount_namespace(os.getpid()):
        fail(f"--tier 2 needs the mount namespace of the cluster: enter it, {drawn}")
    for victim in victims:
        disk = disk_of(link.run.data_dir, victim.ledger)
        if not disk.is_mounted:
            fail(f"{disk.place} is not mounted: {victim.ledger} mounts it when it starts")


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


def _lose(
    link: Link, victims: list[Victim], *, everyone: bool, seed: int | None, dry: bool
) -> list[Lost]:
    """Without a seed the kernel does it."""
    run = link.run
    for victim in victims:
        look(run.run_id, victim)  # before anybody is killed
    if dry:
        if seed is None:
            return losable(run.run_id, victims)
        return lose(run.run_id, run.data_dir, victims, seed, dry=True)
    ids = [victim.process_id for victim in victims if victim.role == "broker"]
    link.ask("power-loss", ids=ids, all=everyone)
    try:
        wait_for_workers(run.run_id, victims)
        if seed is None:
            return lose_cached(run.run_id, run.data_dir, victims)
        return lose(run.run_id, run.data_dir, victims, seed)
    finally:
        link.ask("power-back")


def _show(lost: list[Lost], data: str, seed: int | None, *, dry: bool, as_json: bool) -> None:
    shown = shown_path(data)
    if as_json:
        emit_json(
            {
                "version": VERSION,
                "tier": int(_KERNELS if seed is None else _DRAWN),
                "seed": seed,
                "dry_run": dry,
                "processes": [_document(one, shown) for one in lost],
            }
        )
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
    for path in (path for one in lost for path in one.broken):
        note(f"{shown(path)} is not what its ledger called stable: a sync was forgotten")
    _show_windows(lost)


def _show_windows(lost: list[Lost]) -> None:
    """Where another replica has them, none of these records is lost to anybody."""
    rows = [
        (_name(one), f"{topic}:{partition}", row.end, row.durable, row.left, row.records)
        for one in lost
        for row in one.windows
        for topic, partition in (row.place,)
    ]
    if rows:
        click.echo()
        table(rows, _WINDOWS)


def _say(one: Lost, seed: int | None, *, dry: bool) -> None:
    word = "would lose" if dry else "lost"
    changed = f"{counted(len(one.rows), 'change')} to {counted(one.files, 'file')}"
    by_kernel = ", at the worst" if dry else ""
    click.echo(f"{_name(one)} {word} power: {changed}{_seed_words(seed) or by_kernel}")
    if one.is_full:
        note("its ledger has no room for every file; those count as lost: see tidelog logs")


def _name(one: Lost) -> str:
    role, process_id = one.victim.role, one.victim.process_id
    return f"{role} {process_id}" if role == "broker" else role


def _seed_words(seed: int | None) -> str:
    return "" if seed is None else f" (--seed {seed})"


def _document(one: Lost, shown: Callable[[str], str]) -> dict[str, object]:
    return {
        "role": one.victim.role,
        "id": one.victim.process_id,
        "files": one.files,
        "ledger_full": one.is_full,
        "stable_lost": [shown(path) for path in one.broken],
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
        "windows": [
            {
                "topic": row.place[0],
                "partition": int(row.place[1]),
                "end": row.end,
                "durable_offset": row.durable,
                "left": row.left,
                "records_lost": row.records,
            }
            for row in one.windows
        ],
    }
