"""Snapshot files: the whole image in one file, so that a start need not replay the whole log.

`<offset>-<epoch>.checkpoint` beside the log's segments, as Kafka names them: v2 batches of our
records, each under its CRC, the last one a `SnapshotEnded` that counts the others.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tidelog.coordinator.runtime.flushed import Headers
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import Epoch, Offset
from tidelog.kernel.limits import METADATA_SNAPSHOTS_KEPT
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.metadata_records import MetadataRecord, SnapshotEnded, decode, encode
from tidelog.wire.records import Origin, Record, build_batch, check_crc, iterate_batches
from tidelog.wire.records import iterate_records as records_of_batch

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_BATCH_RECORDS: Final = 1_000


class SnapshotName(Struct, frozen=True):
    offset: Offset
    """The last one in the snapshot."""
    epoch: Epoch

    @property
    def file(self) -> str:
        # Kafka's names give the offset after the last one.
        return f"{self.offset + 1:020d}-{self.epoch:010d}.checkpoint"


def snapshot_names(directory: Directory) -> list[SnapshotName]:
    """What is there, newest first."""
    names = []
    for name in directory.names():
        match = _NAME.fullmatch(name)
        if match:
            names.append(SnapshotName(Offset(int(match[1]) - 1), Epoch(int(match[2]))))
    return sorted(names, key=lambda one: (one.offset, one.epoch), reverse=True)


def encode_batch(
    records: Sequence[MetadataRecord], *, base: int, epoch: int, now_ms: int, headers: Headers = ()
) -> bytearray:
    """One batch of the metadata log or of a snapshot; the headers go to its first record."""
    first, *others = (
        Record(offset, now_ms, None, encode(record)) for offset, record in enumerate(records, base)
    )
    return build_batch(
        [first._replace(headers=headers), *others], origin=Origin(leader_epoch=epoch)
    )


def decode_batch(batch: memoryview, *, place: str) -> Iterator[MetadataRecord]:
    """The records of one whole batch; CorruptError where they are none of ours."""
    try:
        for record in records_of_batch(batch):
            yield decode(record.value or b"", place=place, position=record.offset)
    except (WireError, Rejected) as error:
        raise CorruptError(file=place, position=0, reason=str(error)) from error


def write_snapshot(
    directory: Directory, name: SnapshotName, records: Sequence[MetadataRecord], now_ms: int
) -> None:
    """Durable when this returns."""
    batches = [
        encode_batch(
            records[start : start + _BATCH_RECORDS], base=start, epoch=name.epoch, now_ms=now_ms
        )
        for start in range(0, len(records), _BATCH_RECORDS)
    ]
    directory.replace(name.file, b"".join(batches))


def read_snapshot(directory: Directory, name: SnapshotName) -> list[MetadataRecord]:
    """Every record; CorruptError where the file is not whole."""
    place = f"{directory.path}/{name.file}"
    content = memoryview(directory.read_all(name.file) or b"")
    records: list[MetadataRecord] = []
    try:
        for _, batch in iterate_batches(content):
            if not check_crc(batch):
                raise CorruptError(file=place, position=len(records), reason="crc")
            records += decode_batch(batch, place=place)
    except WireError as error:
        raise CorruptError(file=place, position=len(records), reason=str(error)) from error
    if not records or records[-1] != SnapshotEnded(len(records) - 1):
        raise CorruptError(file=place, position=len(records), reason="its end is missing")
    return records


def prune_snapshots(directory: Directory) -> Offset | None:
    """Keep the newest few; the offset of the oldest one kept, if there are that many."""
    names = snapshot_names(directory)
    for name in names[METADATA_SNAPSHOTS_KEPT:]:
        directory.unlink(name.file)
    if len(names) < METADATA_SNAPSHOTS_KEPT:
        return None
    return names[METADATA_SNAPSHOTS_KEPT - 1].offset
