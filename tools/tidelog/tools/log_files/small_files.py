"""The rows of each small file: indexes, snapshots, checkpoints, marks."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import uuid_text
from tidelog.node.log.epochs import decode_epochs
from tidelog.node.log.index import OffsetIndex, TimeIndex
from tidelog.node.log.kept import decode_kept
from tidelog.node.log.marks import decode_mark
from tidelog.node.log.producer_snapshot import decode_snapshot
from tidelog.tools.log_files.kinds import FileKind, base_of
from tidelog.tools.log_files.sheet import Column, Row, Sheet, plain
from tidelog.tools.output import moment
from tidelog.wire.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
)
from tidelog.wire.log_files import decode_aborted

Reader = Callable[[Directory, str], Sheet]


def small_sheet(directory: Directory, name: str, kind: FileKind) -> Sheet:
    """CorruptError where the file is not what its name says."""
    return _READERS[kind](directory, name)


def is_small(kind: FileKind) -> bool:
    return kind in _READERS


def _content(directory: Directory, name: str) -> bytes:
    return directory.read_all(name) or b""


def _offset_index(directory: Directory, name: str) -> Sheet:
    index, base = OffsetIndex(directory, name), base_of(name)
    index.load(2**31 - 1)
    pairs = zip(index.offsets, index.positions, strict=True)
    rows = ({"offset": base + offset, "position": position} for offset, position in pairs)
    return Sheet("offset_index_entry", plain("offset", "position"), rows)


def _time_index(directory: Directory, name: str) -> Sheet:
    index, base = TimeIndex(directory, name), base_of(name)
    index.load()
    pairs = zip(index.timestamps, index.offsets, strict=True)
    rows = ({"timestamp": timestamp, "offset": base + offset} for timestamp, offset in pairs)
    columns = (
        Column("TIMESTAMP", lambda row: moment(int(str(row["timestamp"])))),
        *plain("offset"),
    )
    return Sheet("time_index_entry", columns, rows)


def _txn_index(directory: Directory, name: str) -> Sheet:
    rows = [row._asdict() for row in decode_aborted(_content(directory, name), place=name)]
    columns = plain("producer_id", "first_offset", "last_offset", "last_stable_offset")
    return Sheet("aborted_transaction", columns, rows)


def _producers(directory: Directory, name: str) -> Sheet:
    state = decode_snapshot(_content(directory, name), place=name)
    rows = (
        {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": None if producer.txn_start < 0 else producer.txn_start,
            "last_marker": None if producer.marker is None else producer.marker._asdict(),
            "last_seen": producer.seen_ms,
            "batches": [
                {
                    "first_sequence": batch.first_sequence,
                    "last_sequence": batch.last_sequence,
                    "last_offset": batch.last_offset,
                }
                for batch in producer.batches
            ],
        }
        for producer_id, producer in state.items()
    )
    columns = (
        *plain("producer_id", "producer_epoch", "coordinator_epoch", "transaction_start"),
        Column("LAST SEEN", lambda row: moment(int(str(row["last_seen"])))),
        Column("BATCHES (SEQUENCES AT LAST OFFSET)", _batches),
    )
    return Sheet("producer", columns, rows)


def _batches(row: Row) -> str:
    batches = row["batches"]
    assert isinstance(batches, list)
    return ", ".join(
        f"{one['first_sequence']}..{one['last_sequence']} at {one['last_offset']}"
        for one in batches
    )


def _epochs(directory: Directory, name: str) -> Sheet:
    entries = decode_epochs(_content(directory, name), place=name).entries()
    rows = [{"epoch": epoch, "start_offset": start} for epoch, start in entries]
    return Sheet("leader_epoch", plain("epoch", "start_offset"), rows)


def _offsets(directory: Directory, name: str) -> Sheet:
    offsets = decode_offsets(_content(directory, name), place=name)
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in offsets.items()
    ]
    return Sheet("checkpoint", plain("topic", "partition", "offset"), rows)


def _partition_metadata(directory: Directory, name: str) -> Sheet:
    topic_id = decode_partition_metadata(_content(directory, name))
    if not any(topic_id):
        raise CorruptError(file=name, position=0, reason="names no topic id")
    return Sheet("partition_metadata", plain("topic_id"), [{"topic_id": uuid_text(topic_id)}])


def _properties(directory: Directory, name: str) -> Sheet:
    return _pairs("property", decode_properties(_content(directory, name), place=name))


def _mark(directory: Directory, name: str) -> Sheet:
    mark = decode_mark(_content(directory, name))
    if mark is None:
        raise CorruptError(file=name, position=0, reason="is not whole")
    pairs: dict[str, object] = {
        "clean": mark.clean,
        "synced": mark.synced,
        "boot_id": mark.boot_id,
        "disk_generation": mark.disk_generation,
        "incarnation": mark.incarnation,
    }
    for log, closed in mark.logs.items():
        pairs[log] = (
            f"offsets {closed.start}..{closed.end}, {closed.size_bytes} bytes, active segment at "
            f"{closed.active_base} of {closed.active_bytes} bytes"
        )
    return _pairs("mark", pairs)


def _clean_shutdown(directory: Directory, name: str) -> Sheet:
    try:
        said = json.loads(_content(directory, name))
    except ValueError as error:
        raise CorruptError(file=name, position=0, reason=str(error)) from error
    return _pairs("clean_shutdown", said)


def _kept(directory: Directory, name: str) -> Sheet:
    kept = decode_kept(_content(directory, name))
    rows = {
        f"{topic}-{partition}": uuid_text(topic_id) for (topic, partition), topic_id in kept.items()
    }
    return _pairs("kept", rows)


def _txn_check(directory: Directory, name: str) -> Sheet:
    said = _content(directory, name).decode("ascii", "replace").strip()
    return _pairs("transaction index", {"checksum": said})


def _pairs(kind: str, pairs: Mapping[str, object]) -> Sheet:
    rows: Iterator[Row] = ({"key": key, "value": value} for key, value in pairs.items())
    return Sheet(kind, plain("key", "value"), rows)


_READERS: Final[Mapping[FileKind, Reader]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.TXN_CHECK: _txn_check,
    FileKind.PRODUCERS: _producers,
    FileKind.EPOCHS: _epochs,
    FileKind.OFFSETS: _offsets,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.PROPERTIES: _properties,
    FileKind.MARK: _mark,
    FileKind.KEPT: _kept,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}
