"""`tidelog disk`: what of the logs is in the page cache, and what is on stable storage."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tidelog.node.runtime.page_cache import KernelView, kernel_view
from tidelog.tools.completing import topic_names
from tidelog.tools.disk_look import Wanted, look
from tidelog.tools.disk_view import Broker, Row, broker_row, trigger_words
from tidelog.tools.log_files.data_folder import Folder, open_folder
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
    not_found,
    size,
    span,
    table,
)

VERSION = 1
_EVERY_S = 1.0
_SUMS = ("SIZE", "CACHED", "DIRTY", "UNFLUSHED")
_FLUSH = ("LAST FLUSH", "TOOK")
_BROKERS = ("BROKER", "STATE", "POLICY", *_SUMS, "OLDEST UNFLUSHED", *_FLUSH)
_HEAD = ("BROKER", "PARTITION")
_PARTITIONS = (*_HEAD, "POLICY", *_SUMS, "OLDEST UNFLUSHED", *_FLUSH, "DURABLE OFFSET")
_SEGMENTS = (*_HEAD, "SEGMENT", *_SUMS, *_FLUSH)


@click.command(
    "disk",
    cls=Command,
    examples=("tidelog disk", "tidelog disk orders:0 --segments", "tidelog disk --watch --json"),
)
@click.argument("what", metavar="[TOPIC[:P]]", required=False, shell_complete=topic_names)
@click.option("--broker", metavar="ID", type=click.IntRange(0), help="Only what this broker has.")
@click.option("--segments", is_flag=True, help="Each segment on a line of its own.")
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@cluster_options
@json_option
def disk(
    target: Target,
    *,
    what: str | None,
    broker: int | None,
    segments: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Show what of the logs is cached, dirty, and not yet on stable storage.

    Cached and dirty bytes are the kernel's words (an old one does not say what is dirty), unflushed
    bytes and the durable offset are the durability ledger's: what a power loss could take. Reads
    files, shared memory and the metadata log, asks no broker, and works on a cluster that is down.
    """
    path = target.folder_of_data()
    while True:
        folder = open_folder(path)
        wanted = _wanted(what, broker, folder)
        _show(look(folder, wanted), kernel_view(), path, segments=segments, as_json=as_json)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(_EVERY_S)
        if not as_json:
            click.clear()


def _wanted(what: str | None, broker: int | None, folder: Folder) -> Wanted:
    """The command ends where there is no such thing."""
    brokers = folder.brokers
    if broker is not None and broker not in brokers:
        there = ", ".join(map(str, brokers)) or "none"
        fail(f"there is no broker {broker} with files: those with files are {there}", NOT_FOUND)
    if what is None:
        return Wanted(broker)
    names = folder.image.names
    topic, colon, number = what.rpartition(":")
    if not colon:
        topic = what
    elif not topic or not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{what!r}: must be TOPIC or TOPIC:PARTITION")
    if topic not in names:
        raise not_found("topic", topic, names, see="tidelog topic list")
    if not colon:
        return Wanted(broker, topic)
    last = len(names[topic].partitions) - 1
    if int(number) > last:
        fail(f"topic {topic!r} has no partition {number}: its last is {last}", NOT_FOUND)
    return Wanted(broker, topic, int(number))


def _show(
    brokers: Sequence[Broker], kernel: KernelView, data: Path, *, segments: bool, as_json: bool
) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [broker_row(one, now_ms, segments=segments) for one in brokers]
    if as_json:
        emit_json(
            {
                "version": VERSION,
                "data": str(data),
                "brokers": rows,
                "kernel": {
                    "vm": dict(kernel.triggers),
                    "dirty_bytes": kernel.dirty,
                    "writeback_bytes": kernel.writeback,
                },
            }
        )
        return
    _tables(rows, segments=segments)
    _sick(brokers)
    _kernel(kernel)


def _tables(rows: Sequence[Row], *, segments: bool) -> None:
    table([_broker_cells(row) for row in rows], _BROKERS)
    found = [(row["id"], one) for row in rows for one in _list(row, "partitions")]
    if not found:
        return
    click.echo()
    if not segments:
        table([_partition_cells(broker, row) for broker, row in found], _PARTITIONS)
        return
    table(
        [
            (broker, _place(row), one["file"], *_sums(one), *_flush(one))
            for broker, row in found
            for one in _list(row, "segments")
        ],
        _SEGMENTS,
    )


def _sick(brokers: Sequence[Broker]) -> None:
    """Faults that were made on purpose: they explain what the tables show."""
    found = [f"broker {one.broker_id}: {what}" for one in brokers for what in one.sick]
    if found:
        click.echo()
        for line in found:
            click.echo(f"fault: {line} (tidelog chaos heal)")


def _broker_cells(row: Row) -> Sequence[object]:
    head = (row["id"], row["state"], row["flush_policy"])
    return (*head, *_sums(row), _oldest(row), *_flush(row))


def _partition_cells(broker: object, row: Row) -> Sequence[object]:
    head = (broker, _place(row), row["flush_policy"])
    end = row["durable_offset"]
    if end is not None and not row["durable_offset_exact"]:
        end = f"at least {end}"
    return (*head, *_sums(row), _oldest(row), *_flush(row), end)


def _flush(row: Row) -> tuple[str | None, str | None]:
    last = row["last_flush"]
    if not isinstance(last, dict):
        return None, None
    return f"{span(last['age_ms'])} ago", f"{last['took_ms']:.1f} ms"


def _list(row: Row, name: str) -> list[Row]:
    found = row[name]
    assert isinstance(found, list)
    return found


def _place(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _sums(row: Row) -> tuple[str, ...]:
    values = (row[f"{word}_bytes"] for word in ("size", "cached", "dirty", "unflushed"))
    return tuple(size(value) if isinstance(value, int) else "unknown" for value in values)


def _oldest(row: Row) -> str | None:
    value = row["oldest_unflushed_ms"]
    return span(value) if isinstance(value, int) else None


def _kernel(kernel: KernelView) -> None:
    """A paragraph of its own: it is about the machine, not about a broker."""
    click.echo()
    if kernel.dirty is not None and kernel.writeback is not None:
        now = f"{size(kernel.dirty)} dirty on this machine, {size(kernel.writeback)} on the way"
        click.echo(f"kernel: {now}")
    for words in trigger_words(kernel.triggers):
        click.echo(f"  writing back: {words}")
