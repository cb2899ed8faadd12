"""Compaction as a broker does it, without its threads; and what a consumer finds afterwards."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harness.logs.batches import NOW, NOW_MS
from tidelog.kernel.files import Directory
from tidelog.node.log.cleaner import Candidate, candidate, job_for
from tidelog.node.log.cleaning import Cleaned, Job, clean
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.swap import OnLoop, discard_unfinished, put_in_force
from tidelog.wire.codecs import Codec
from tidelog.wire.log_files import Aborted, decode_aborted, file_name
from tidelog.wire.records import (
    BatchHeader,
    EndMarker,
    Origin,
    Record,
    build_batch,
    build_marker,
    iterate_batches,
    iterate_records,
    place_batch,
    read_header,
)

MAP_BYTES = 128 << 20


def append(
    log: Log,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    origin: Origin = Origin(),  # noqa: B008 -- immutable
) -> BatchHeader:
    """One batch at the log's end, whatever a broker would say to it."""
    rows = [Record(at, timestamp + at, key, value) for at, (key, value) in enumerate(records)]
    view = memoryview(build_batch(rows, codec=codec, origin=origin))
    place_batch(view, 0, base_offset=log.end, leader_epoch=0)
    log.append_as_follower(NOW, timestamp, view)
    return read_header(view)


def append_marker(
    log: Log, producer: int, *, commit: bool, timestamp: int = NOW_MS, epoch: int = 0
) -> BatchHeader:
    """The end of a transaction."""
    marker = EndMarker(producer, epoch, 0, committed=commit)
    view = memoryview(build_marker(marker, timestamp))
    place_batch(view, 0, base_offset=log.end, leader_epoch=0)
    log.append_as_follower(NOW, timestamp, view)
    return read_header(view)


def aborted_of(log: Log) -> list[Aborted]:
    """What the indexes of its segments say was aborted."""
    found: list[Aborted] = []
    for segment in log.segments:
        name = file_name(segment.base, ".txnindex")
        found += decode_aborted(log.directory.read_all(name) or b"", place=name)
    return found


def compact(
    logs: LogDirectory,
    log: Log,
    now_ms: int = NOW_MS,
    *,
    high_watermark: int | None = None,
    map_bytes_max: int = MAP_BYTES,
    cleaner: Callable[[Directory, Job], Iterator[object]] = clean,
    on_loop: OnLoop | None = None,
) -> Candidate | None:
    """One pass, due or not, with its swaps and its checkpoint."""
    water = log.end if high_watermark is None else high_watermark
    found = candidate(log, logs.cleaned(log.name.key), water, now_ms)
    if found is None:
        return None
    if logs.announces(log.name.key, found.dirty_start, found.cleanable[-1].end):
        checkpoint(logs)
    job = job_for(found, map_bytes_max=map_bytes_max, now_ms=now_ms)
    remove_at_ms = now_ms + log.settings.file_delete_delay_ms
    for done in cleaner(log.directory, job):
        if not isinstance(done, Cleaned):
            logs.note_cleaned(log.name.key, done.end)  # type: ignore[attr-defined] # Finished
        elif not put_in_force(log, done, found.cuts, remove_at_ms, on_loop or at_once):
            discard_unfinished(log.directory)
            return found
    checkpoint(logs)
    return found


def at_once(call: Callable[[], Any]) -> Any:
    """Whoever compacts owns the log, too."""
    return call()


def checkpoint(logs: LogDirectory) -> None:
    """As the shell writes them, and forces out."""
    made = logs.checkpoint({})
    made.write()
    logs.checkpointed(made)
    logs.sync()


def batches_of(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch a reader gets, from the start on."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    at = log.start
    while (piece := log.read(at, 1 << 20, log.end, min_one=True)) is not None:
        content = piece.file.read(piece.position, piece.size)
        for header, batch in iterate_batches(content):
            found.append((header, list(iterate_records(batch))))
            at = header.next_offset
    return found


def records_of(log: Log) -> list[Record]:
    """Every record but the markers."""
    return [
        record for header, records in batches_of(log) if not header.is_control for record in records
    ]
