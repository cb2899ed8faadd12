"""`tidelog chaos corrupt`: bytes that rot on a broker's disk."""

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct, to_builtins

from tidelog.node.log.directory_names import key_of
from tidelog.tools.chaos.corrupting import (
    OF_LOG_DIRECTORY,
    Files,
    Spot,
    Wanted,
    make_damage,
    plan_damage,
)
from tidelog.tools.chaos.damage import How, NoDamageError
from tidelog.tools.chaos.losing import shown_path
from tidelog.tools.commands.cluster import VERSION
from tidelog.tools.completing import topic_names
from tidelog.tools.log_files.cluster_folder import around
from tidelog.tools.log_files.data_folder import Folder, folder_around
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.places import resolve
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.verify_directory import life_of, read_checkpoints
from tidelog.tools.log_files.verify_log import Life
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEEDS = 1 << 32
_SHOWN_BYTES = 8
_OFFSETS_MAX = (1 << 63) - 1
_NAMED = re.compile(r"[^/]+:[0-9]+")
_WORDS = {
    How.BIT_FLIP: "a bit flipped",
    How.ZERO_PAGE: "a page lost",
    How.STRAY_PAGE: "a page written to the wrong place",
    How.TRUNCATE: "the end cut off",
}


class _Replica(Struct, frozen=True):
    """Whose files."""

    path: Path
    folder: Folder
    broker: int
    life: Life

    @property
    def is_running(self) -> bool:
        return self.life is Life.OPEN


@click.command(
    "corrupt",
    cls=Command,
    examples=(
        "tidelog chaos corrupt orders:0",
        "tidelog chaos corrupt orders:0 --broker 1 --offset 42 --seed 7",
        "tidelog chaos corrupt orders:0 --file index --how zero-page --dry-run --json",
    ),
)
@click.argument("partition", metavar="TOPIC:P", shell_complete=topic_names)
@click.option(
    "--broker", metavar="ID", type=click.IntRange(0), help="Whose replica; else the leader's."
)
@click.option(
    "--how",
    type=click.Choice([how.value for how in How]),
    default=How.BIT_FLIP.value,
    show_default=True,
    help="What the disk does.",
)
@click.option(
    "--file",
    "files",
    type=click.Choice([files.word for files in Files]),
    default=Files.LOG.word,
    show_default=True,
    help="To which file.",
)
@click.option(
    "--offset",
    metavar="N",
    type=click.IntRange(0, _OFFSETS_MAX),
    help="In the batch with this offset, or in its segment's index.",
)
@click.option(
    "--at",
    metavar="BYTE",
    type=click.IntRange(0, _OFFSETS_MAX),
    help="At this byte of the file, or in its page.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, _SEEDS - 1),
    metavar="N",
    help="Where, if that is not said; the same files and seed are damaged the same.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be damaged.")
@cluster_options
@json_option
def corrupt(  # noqa: PLR0913 -- one parameter an option
    target: Target,
    *,
    partition: str,
    broker: int | None,
    how: str,
    files: str,
    offset: int | None,
    at: int | None,
    seed: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Damage a file of a broker as a disk that rots would, whether the broker runs or not.

    A bit is flipped, a page reads as zeros or as another page of the file, or the file ends too
    early. It says which bytes were changed, which batch they are of, and what comes of it; `log
    verify` finds it. It cannot be undone: a replica mends itself from another one.
    """
    wanted = Wanted(next(one for one in Files if one.word == files), How(how), at, offset)
    _refuse_nonsense(partition, wanted)
    drawn = random.randrange(_SEEDS) if seed is None else seed  # noqa: S311 -- no secret
    replica = _replica(partition, target, broker)
    spot = _plan(replica, wanted, drawn)
    if not dry_run:
        make_damage(spot)
    hopes = _expectations(partition, replica, wanted, spot)
    if as_json:
        begin = {"version": VERSION, "seed": drawn, "dry_run": dry_run, "how": how}
        emit_json({**begin, **_document(replica, spot), "expect": hopes})
    else:
        word = "would have" if dry_run else "has"
        click.echo(f"broker {replica.broker} {word} {_WORDS[wanted.how]} (--seed {drawn})")
        _show(replica, spot)
        for hope in hopes:
            click.echo(f"expect: {hope}")


def _refuse_nonsense(partition: str, wanted: Wanted) -> None:
    if not _NAMED.fullmatch(partition):
        raise click.UsageError(f"{partition!r}: must be TOPIC:PARTITION")
    if wanted.at is not None and wanted.offset is not None:
        raise click.UsageError("--at or --offset: each says where the damage is to be")
    if wanted.offset is not None and not wanted.target.is_of_segment:
        raise click.UsageError(f"--offset: {wanted.target.word} is not a file of a segment")


def _replica(partition: str, target: Target, broker: int | None) -> _Replica:
    path = resolve(partition, target, broker).path
    folder = folder_around(path)
    owners = [] if folder is None else _owners(folder, path.parent)
    if folder is None or not owners:
        fail(f"no broker has {partition}: only brokers' files are damaged", NOT_FOUND)
    life = life_of(ReadOnlyDirectory(str(path.parent)), around(path.parent, folder))
    return _Replica(path, folder, owners[0], life)


def _plan(replica: _Replica, wanted: Wanted, seed: int) -> Spot:
    if wanted.how is How.TRUNCATE and replica.is_running:
        fail(
            "a disk does not shorten a file that a process has open: "
            f"tidelog broker stop {replica.broker} first"
        )
    try:
        return plan_damage(replica.path, wanted, seed, is_closed=replica.life is Life.CLOSED)
    except NoDamageError as error:
        fail(str(error))


def _owners(folder: Folder, directory: Path) -> list[int]:
    return [broker for broker, directories in folder.brokers.items() if directory in directories]


# -- what comes of it ---------------------------------------------------------------------------


def _expectations(partition: str, replica: _Replica, wanted: Wanted, spot: Spot) -> list[str]:
    finds = f"tidelog log verify {partition} --broker {replica.broker}"
    if wanted.target in OF_LOG_DIRECTORY:
        finds = f"tidelog log verify {replica.path.parent}"
    told = [f"{finds} tells of it"]
    if wanted.target is Files.LOG:
        told += [_who_finds(replica, spot), _who_mends(replica)]
    return told


def _who_finds(replica: _Replica, spot: Spot) -> str:
    unread = (
        "as soon as a client or a replica wants the batch from the disk, and sends it to nobody"
    )
    if replica.is_running:
        return f"broker {replica.broker} finds it {unread}"
    key = key_of(replica.path.name)
    points = read_checkpoints(ReadOnlyDirectory(str(replica.path.parent)), Report()).recovery_points
    point = 0 if key is None else points.get(key, 0)
    offset = -1 if spot.batch is None else spot.batch.base_offset
    if replica.life is Life.CLOSED or (replica.life is Life.KILLED and 0 <= offset < point):
        return f"once started, broker {replica.broker} finds it {unread}"
    return f"broker {replica.broker} finds it at its next start, which reads from offset {point} on"


def _who_mends(replica: _Replica) -> str:
    key = key_of(replica.path.name)
    view = None if key is None else replica.folder.image.names.get(key[0])
    isr: Iterable[int] = ()
    if view is not None and key is not None and key[1] < len(view.partitions):
        isr = view.partitions[key[1]].isr
    others = " or ".join(str(one) for one in sorted(isr) if one != replica.broker)
    if not others:
        return "no other replica is in sync: nobody can mend it"
    return f"it then gives this replica up, and takes all of it anew from broker {others}"


# -- output -------------------------------------------------------------------------------------


def _document(replica: _Replica, spot: Spot) -> dict[str, object]:
    damage = spot.damage
    return {
        "broker": replica.broker,
        "running": replica.is_running,
        "file": shown_path(str(replica.folder.path))(str(spot.path)),
        "size": spot.size,
        "position": damage.position,
        "old": damage.old.hex(),
        "new": damage.new.hex(),
        "batch": None if spot.batch is None else to_builtins(spot.batch),
    }


def _show(replica: _Replica, spot: Spot) -> None:
    batch, damage = spot.batch, spot.damage
    offsets = "-" if batch is None else f"{batch.base_offset}..{batch.last_offset}"
    file = shown_path(str(replica.folder.path))(str(spot.path))
    row = (file, damage.position, len(damage.old), _hex(damage.old), _hex(damage.new), offsets)
    table([row], ("FILE", "BYTE", "BYTES", "OLD", "NEW", "OFFSETS"))


def _hex(content: bytes) -> str:
    if not content:
        return "gone"
    more = "..." if len(content) > _SHOWN_BYTES else ""
    return content[:_SHOWN_BYTES].hex() + more
