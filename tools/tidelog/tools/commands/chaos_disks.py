"""`tidelog chaos io-error`, `full-disk`, `slow-disk`, `heal` and `status`: disks that are sick."""

import errno
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from msgspec import structs

from tidelog.clients.consumer.offsets import duration_ms
from tidelog.kernel.limits import DISK_FAULT_DELAY_MAX_MS, DISK_FAULTS_MAX
from tidelog.kernel.sizes import byte_count
from tidelog.node.ipc.board import no_room
from tidelog.node.ipc.fault_layout import ANY, PAGE_BYTES, Ailment, DiskFault, FileGroup, Operation
from tidelog.tools.chaos.sick_disks import (
    OPERATIONS,
    ROOM,
    Sick,
    TooManyError,
    directories_of,
    fault_of,
    heal,
    make_sick,
    sick_disks,
    what_of,
)
from tidelog.tools.commands.cluster import VERSION, link_to
from tidelog.tools.completing import topic_names
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Target,
    cluster_options,
    counted,
    emit_json,
    fail,
    json_option,
    nearest,
    not_found,
    table,
    topic_and_partition,
)
from tidelog.tools.supervisor.folder import read_cluster
from tidelog.tools.supervisor.runs import Run

_F = TypeVar("_F", bound=Callable[..., object])
_COLUMNS: Final = ("BROKER", "FAULT", "WHAT", "PARTITION", "FILES", "LOG DIR", "SINCE", "STRUCK")
_RATE_MAX: Final = 10**12
_NS_PER_MS: Final = 1_000_000


def _length(text: str) -> int:
    """Milliseconds."""
    found = duration_ms(text)
    if not found:
        raise click.BadParameter(f"{text!r} is no length of time: 50ms, 5s or 1m30s is")
    return found


def _delay(text: str) -> int:
    """As that; one operation waits no longer."""
    found = _length(text)
    if found > DISK_FAULT_DELAY_MAX_MS:
        raise click.BadParameter(f"{text!r}: at most {DISK_FAULT_DELAY_MAX_MS // 1_000} s")
    return found


def _rate(text: str) -> int:
    """Bytes in a second."""
    found = byte_count(text.removesuffix("/s"))
    if found is None or found > _RATE_MAX:
        raise click.BadParameter(f"{text!r} is no rate: 500KiB/s, 2MB/s or 1000000 is")
    return found


# -- what all have in common --------------------------------------------------------------------


def _where_options(command: _F) -> _F:
    """Whose disk, which part of it, and how long."""
    for option in reversed(
        (
            click.argument("ids", metavar="BROKER...", type=click.IntRange(0), nargs=-1),
            click.option("--log-dir", metavar="DIR", help="Only this log directory, by its name."),
            click.option(
                "--partition",
                metavar="TOPIC:P",
                shell_complete=topic_names,
                help="Only this partition's files.",
            ),
            click.option(
                "--file",
                "group",
                type=click.Choice([one.word for one in FileGroup]),
                help="Only such files; checkpoint is all that is none of the others.",
            ),
            click.option("--once", is_flag=True, help="It strikes once; else until it is healed."),
            click.option(
                "--for", "lasts_ms", type=_length, metavar="TIME", help="It ends by itself."
            ),
        )
    ):
        command = option(command)
    return command


class Where:
    """A running cluster, and which part of it is to be sick."""

    def __init__(self, run: Run, asked: dict[str, Any]) -> None:
        self.run = run
        self._cluster = read_cluster(Path(run.data_dir))
        self.ids: Sequence[int] = tuple(dict.fromkeys(asked.get("ids", ())))
        for broker in self.ids:
            if broker not in self._cluster.brokers:
                there = ", ".join(map(str, self._cluster.brokers))
                fail(f"there is no broker {broker}: the brokers are {there}", NOT_FOUND)
        self._asked = asked

    @property
    def brokers(self) -> Sequence[int]:
        return self.ids or self._cluster.brokers

    def directories(self, broker: int) -> tuple[str, ...]:
        return directories_of(self._cluster, self.run.data_dir, broker)

    def put(self, faults: Iterable[DiskFault]) -> list[Sick]:
        """On the disks of all that were named; on none where one of them has not what was named."""
        asked = self._asked
        lasts_ms = asked["lasts_ms"]
        until = 0 if lasts_ms is None else time.monotonic_ns() + lasts_ms * _NS_PER_MS
        group = next((one for one in FileGroup if one.word == asked["group"]), None)
        more = {"times_max": int(asked["once"]), "until_ns": until, "group": group}
        partition = self._partition()
        made = [structs.replace(one, partition=partition, **more) for one in faults]
        at = {broker: self._directory(broker) for broker in self.ids}
        new = {
            (broker, number)
            for broker in self.ids
            for number in self._put_on(
                broker, [structs.replace(one, directory=at[broker]) for one in made]
            )
        }
        return [one for one in self.sick() if (one.broker, one.fault.number) in new]

    def sick(self) -> list[Sick]:
        """All that is on, and what is over but was not healed."""
        return sick_disks(self.run.run_id, self.directories)

    def _put_on(self, broker: int, faults: list[DiskFault]) -> list[int]:
        try:
            return make_sick(self.run.run_id, broker, faults)
        except TooManyError:
            many = counted(DISK_FAULTS_MAX, "fault")
            fail(f"broker {broker} has {many} already: tidelog chaos heal {broker} first")
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.ENOMEM}:
                raise
            fail(no_room(PAGE_BYTES))

    def _directory(self, broker: int) -> int:
        wanted = self._asked["log_dir"]
        if wanted is None:
            return ANY
        there = self.directories(broker)
        for number, path in enumerate(there):
            if wanted.rstrip("/") in {path, path.rpartition("/")[2]}:
                return number
        names = [path.rpartition("/")[2] for path in there]
        hint = nearest(wanted, names) or f": it has {', '.join(names)}"
        return fail(f"broker {broker} has no log directory {wanted!r}{hint}", NOT_FOUND)

    def _partition(self) -> str:
        """As its folder is called. The command ends where a broker does not have it."""
        asked = self._asked["partition"]
        if asked is None:
            return ""
        topic, number = topic_and_partition(asked)
        names = open_folder(Path(self.run.data_dir)).image.names
        if topic not in names:
            raise not_found("topic", topic, names, see="tidelog topic list")
        partitions = names[topic].partitions
        if number >= len(partitions):
            last = len(partitions) - 1
            fail(f"topic {topic!r} has no partition {number}: its last is {last}", NOT_FOUND)
        replicas = partitions[number].replicas
        for broker in self.ids:
            if broker not in replicas:
                there = ", ".join(map(str, replicas))
                fail(f"broker {broker} has no replica of {asked}: they are on {there}", NOT_FOUND)
        return f"{topic}-{number}"


def _make(
    target: Target, asked: dict[str, Any], faults: Iterable[DiskFault], *, as_json: bool
) -> None:
    if not asked["ids"]:
        raise click.UsageError("name the brokers whose disks are to be sick")
    if asked["once"] and asked["lasts_ms"] is not None:
        raise click.UsageError("--once or --for: each says when it ends")
    with link_to(target) as link:
        where = Where(link.run, asked)
        made = where.put(faults)
    if as_json:
        emit_json({"version": VERSION, "faults": [one.document for one in made]})
        return
    for one in made:
        where_in = f" in {one.log_dir}" if one.log_dir else ""
        click.echo(f"broker {one.broker}: {what_of(one.fault, where_in)}{_until(asked)}")


def _until(asked: dict[str, Any]) -> str:
    if asked["once"]:
        return ", once"
    lasts_ms = asked["lasts_ms"]
    return ", until tidelog chaos heal" if lasts_ms is None else f", for {lasts_ms / 1_000:g} s"


# -- the faults ---------------------------------------------------------------------------------


@click.command(
    "io-error",
    cls=Command,
    examples=(
        "tidelog chaos io-error 1 --on fsync --once",
        "tidelog chaos io-error 0 2 --on read --partition orders:0 --for 30s",
        "tidelog chaos io-error 1 --on write --log-dir log0 --json",
    ),
)
@_where_options
@click.option(
    "--on",
    "on",
    type=click.Choice(list(OPERATIONS)),
    multiple=True,
    help="What fails; again for more. [default: all of them]",
)
@cluster_options
@json_option
def io_error(target: Target, *, on: tuple[str, ...], as_json: bool, **asked: Any) -> None:  # noqa: ANN401 -- click's
    """Have reads, writes or flushes of a broker's disk fail with EIO.

    A write is every change of a file or a name. A flush that fails is the end of its log directory,
    and of a broker that has no other; a write that fails too, unless only some partition's do. A
    read that fails costs the replica, which others replace. Nothing touches the disk itself.
    """
    fault = fault_of(Ailment.IO_ERROR, _operations(on, OPERATIONS), error=errno.EIO)
    _make(target, asked, [fault], as_json=as_json)


@click.command(
    "full-disk",
    cls=Command,
    examples=(
        "tidelog chaos full-disk 1",
        "tidelog chaos full-disk 0 --at roll --at checkpoint --for 30s",
        "tidelog chaos full-disk 2 --at fsync --partition orders:0 --json",
    ),
)
@_where_options
@click.option(
    "--at",
    "at",
    type=click.Choice(list(ROOM)),
    multiple=True,
    help="Where it is found out; again for more. [default: write, roll and checkpoint]",
)
@cluster_options
@json_option
def full_disk(target: Target, *, at: tuple[str, ...], as_json: bool, **asked: Any) -> None:  # noqa: ANN401 -- click's
    """Have a broker find its disk full, though it is not.

    What it leads goes to in-sync replicas that have room; where none has, records are refused
    until there is room, and reads go on. Checkpoints are tried again. A disk that says so only at a
    flush has lost what it took: the log directory is at its end, as with an error. Nobody else on
    the machine notices, and no room is taken.
    """
    operations = _operations(at or ("write", "roll", "checkpoint"), ROOM)
    fault = fault_of(Ailment.FULL_DISK, operations, error=errno.ENOSPC)
    _make(target, asked, [fault], as_json=as_json)


@click.command(
    "slow-disk",
    cls=Command,
    examples=(
        "tidelog chaos slow-disk 1 --fsync-delay 3s",
        "tidelog chaos slow-disk 0 --rate 2MiB/s --for 1m",
        "tidelog chaos slow-disk 2 --delay 50ms --partition orders:0 --json",
    ),
)
@_where_options
@click.option(
    "--delay",
    "delay_ms",
    type=_delay,
    metavar="TIME",
    help="Each read and write takes so much longer.",
)
@click.option(
    "--fsync-delay",
    "fsync_delay_ms",
    type=_delay,
    metavar="TIME",
    help="Each flush does.",
)
@click.option(
    "--rate", type=_rate, metavar="BYTES/s", help="What is read and written gets so many."
)
@cluster_options
@json_option
def slow_disk(
    target: Target,
    *,
    delay_ms: int | None,
    fsync_delay_ms: int | None,
    rate: int | None,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 -- click's
) -> None:
    """Have a broker's disk take its time.

    Writes are made by the broker's event loop, as with a disk whose page cache is full: while it
    waits the broker answers nobody, and is given up after 6 s. Flushes, and reads for consumers,
    wait in threads. One operation waits for 60 s at most.
    """
    faults = []
    if delay_ms or rate:
        both = OPERATIONS["read"] | OPERATIONS["write"]
        how = {"delay_ns": (delay_ms or 0) * _NS_PER_MS, "bytes_per_second": rate or 0}
        faults.append(fault_of(Ailment.SLOW_DISK, both, **how))
    if fsync_delay_ms:
        delay_ns = fsync_delay_ms * _NS_PER_MS
        faults.append(fault_of(Ailment.SLOW_DISK, OPERATIONS["fsync"], delay_ns=delay_ns))
    if not faults:
        raise click.UsageError("say how slow: --delay, --fsync-delay or --rate")
    _make(target, asked, faults, as_json=as_json)


def _operations(words: Iterable[str], known: dict[str, Operation]) -> Operation:
    """All where none is named."""
    found = Operation(0)
    for word in tuple(words) or known:
        found |= known[word]
    return found


# -- healing and looking ------------------------------------------------------------------------


@click.command("heal", cls=Command, examples=("tidelog chaos heal", "tidelog chaos heal 1 --json"))
@click.argument("ids", metavar="[BROKER...]", type=click.IntRange(0), nargs=-1)
@cluster_options
@json_option
def heal_disks(target: Target, *, ids: tuple[int, ...], as_json: bool) -> None:
    """Take all faults from the disks of these brokers, or of all.

    What the faults did stays done: a log directory that is offline comes back when its broker is
    started again.
    """
    with link_to(target) as link:
        where = Where(link.run, {"ids": ids})
        healed = [one for one in where.sick() if one.broker in where.brokers]
        heal(link.run.run_id, where.brokers)
    if as_json:
        emit_json({"version": VERSION, "healed": [one.document for one in healed]})
        return
    for one in healed:
        click.echo(f"broker {one.broker}: no longer {one.fault.ailment.word}: {one.sentence}")
    if not healed:
        click.echo("no disk was sick")


@click.command(
    "status", cls=Command, examples=("tidelog chaos status", "tidelog chaos status --json")
)
@cluster_options
@json_option
def chaos_status(target: Target, *, as_json: bool) -> None:
    """Show which faults are on, since when, and how often each struck."""
    with link_to(target) as link:
        found = Where(link.run, {}).sick()
    if as_json:
        emit_json({"version": VERSION, "faults": [one.document for one in found]})
    elif found:
        table([_row(one) for one in found], _COLUMNS)
    else:
        click.echo("no disk is sick")


def _row(one: Sick) -> tuple[object, ...]:
    fault, document = one.fault, one.document
    what = what_of(fault) + (", over" if one.is_over else "")
    return (
        one.broker,
        fault.ailment.word,
        what,
        fault.partition,
        document["file"],
        one.log_dir,
        document["since"],
        one.struck,
    )
