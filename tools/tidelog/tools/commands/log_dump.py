"""`tidelog log dump`: what is in the files of a log, while its broker runs or not."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tidelog.clients.consumer.offsets import Point, parse_range
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.instant import WallMs
from tidelog.node.log.directory_names import key_of
from tidelog.tools.completing import topic_names
from tidelog.tools.log_files.batches import Source, batch_sheet, record_sheet, sources_of
from tidelog.tools.log_files.cluster_folder import log_directories_in
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.log_files.directory_sheet import directory_sheet
from tidelog.tools.log_files.kinds import METADATA_TOPIC, FileKind, base_of, kind_of
from tidelog.tools.log_files.metadata_replay import NAME as METADATA_NAME
from tidelog.tools.log_files.places import Place, PlaceKind, resolve
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.segment_map import segment_map
from tidelog.tools.log_files.sheet import Sheet
from tidelog.tools.log_files.small_files import is_small, small_sheet
from tidelog.tools.output import (
    VIOLATION,
    Command,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
    stream_table,
)


@click.command(
    "dump",
    cls=Command,
    examples=(
        "tidelog log dump orders:0",
        "tidelog log dump orders:0 --deep --from-offset -10 --json",
        "tidelog log dump .tidelog/default/broker-0/log0/orders-0/leader-epoch-checkpoint",
    ),
)
@click.argument("what", metavar="PATH|TOPIC:P", shell_complete=topic_names)
@click.option("--broker", metavar="ID", type=click.IntRange(0), help="Whose replica of TOPIC:P.")
@click.option("--deep", is_flag=True, help="One line a record instead of one a batch.")
@click.option("--segments", is_flag=True, help="Only the map of the segments.")
@click.option(
    "--from-offset",
    "begin",
    metavar="OFFSET",
    default="start",
    show_default=True,
    help="start, end, 123, -10 (from the end), @ISO (UTC), @-1h.",
)
@click.option("-n", "--max", "rows_max", metavar="N", type=click.IntRange(1), help="At most N.")
@cluster_options
@json_option
def dump(  # noqa: PLR0913 -- the options of the command
    target: Target,
    *,
    what: str,
    broker: int | None,
    deep: bool,
    segments: bool,
    begin: str,
    rows_max: int | None,
    as_json: bool,
) -> None:
    """Show a segment, index, snapshot, checkpoint, partition or whole log directory.

    A partition is shown as a map of its segments and then batch by batch. Offsets, positions and
    sizes are the files' own; what is wrong stands in the last column.
    """
    point = _point(begin)
    place = resolve(what, target, broker)
    try:
        for number, sheet in enumerate(_sheets(place, point, deep=deep, map_only=segments)):
            _print(sheet, rows_max, first=number == 0, as_json=as_json)
    except CorruptError as error:
        fail(f"{what}: {error.reason}, at byte {error.position}", VIOLATION)


def _point(text: str) -> Point:
    try:
        span = parse_range(text, WallMs(time.time_ns() // 1_000_000))
    except ValueError as error:
        raise click.UsageError(f"--from-offset: {error}") from None
    if span.stop is not None:
        raise click.UsageError(f"--from-offset {text!r}: must be one offset, not a range")
    return span.first


def _print(sheet: Sheet, rows_max: int | None, *, first: bool, as_json: bool) -> None:
    if as_json:
        for document in itertools.islice(sheet.documents(), rows_max):
            emit_json(document)
        return
    if not first:
        click.echo()
    if sheet.title:
        click.echo(sheet.title)
    stream_table(itertools.islice(sheet.cells(), rows_max), sheet.headings)


# -- what a place holds -------------------------------------------------------------------------


def _sheets(place: Place, point: Point, *, deep: bool, map_only: bool) -> Iterator[Sheet]:
    match place.kind:
        case PlaceKind.FILE:
            yield _file(place.path, point, deep=deep)
        case PlaceKind.PARTITION:
            yield from _partition(place.path, point, deep=deep, map_only=map_only)
        case PlaceKind.LOG_DIRECTORY:
            yield directory_sheet(ReadOnlyDirectory(str(place.path)))
        case PlaceKind.LOG_DIRECTORIES:
            for directory in log_directories_in(place.path):
                yield directory_sheet(ReadOnlyDirectory(str(directory)), title=directory.name)
        case PlaceKind.COORDINATOR:
            path = place.path / METADATA_NAME
            yield from _partition(path, point, deep=deep, map_only=map_only)
        case PlaceKind.CLUSTER:
            yield from _cluster(place.path)


def _file(path: Path, point: Point, *, deep: bool) -> Sheet:
    directory = ReadOnlyDirectory(str(path.parent))
    name = path.name
    kind = kind_of(name)
    if kind is FileKind.LEFT_BEHIND:  # what it was, or was going to be, stands before that
        kind = kind_of(name.rpartition(".")[0])
    if is_small(kind):
        return small_sheet(directory, name, kind)
    key = key_of(path.resolve().parent.name)
    topic = "" if key is None else key[0]
    if kind is FileKind.SEGMENT:
        source = Source(directory, name, base_of(name))
    elif kind is FileKind.METADATA_SNAPSHOT:
        source, topic = Source(directory, name, 0), METADATA_TOPIC
    else:
        fail(f"{str(path)!r} is not a file of a log: see tidelog log dump --help")
    return record_sheet([source], topic, point) if deep else batch_sheet([source], point)


def _partition(path: Path, point: Point, *, deep: bool, map_only: bool) -> Iterator[Sheet]:
    directory = ReadOnlyDirectory(str(path))
    yield segment_map(directory)
    if map_only:
        return
    key = key_of(path.resolve().name)
    sources = sources_of(directory)
    if deep:
        yield record_sheet(sources, "" if key is None else key[0], point)
    else:
        yield batch_sheet(sources, point)


def _cluster(path: Path) -> Iterator[Sheet]:
    folder = open_folder(path)
    for broker, directories in folder.brokers.items():
        for directory in directories:
            which = f", {directory.name}" if len(directories) > 1 else ""
            title = f"broker {broker}{which}"
            yield directory_sheet(ReadOnlyDirectory(str(directory)), title=title)
    metadata = folder.coordinator / METADATA_NAME
    if metadata.is_dir():
        yield segment_map(ReadOnlyDirectory(str(metadata)), title="metadata log")
