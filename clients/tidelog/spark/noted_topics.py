"""Partitions of a stopped cluster of which no broker has a folder: a broker makes the folder with
the first record, so these have none.

The cluster's metadata log names them. It also says which log directories their replicas may lie in:
only if all of those are here is a partition without a folder known to be empty.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition, Uuid
from tidelog.kernel.launch import coordinator_directory
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.log_files import LOG_SUFFIX, file_name, offsets_with_suffix
from tidelog.wire.metadata_records import (
    BrokerRegistered,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    SnapshotEnded,
    TopicCreated,
    TopicDeleted,
    decode,
)
from tidelog.wire.records import check_crc, iterate_batches, iterate_records

_LOG: Final = "__cluster_metadata-0"
_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")


class _Noted:
    """What of the metadata counts here, by replaying it."""

    def __init__(self) -> None:
        self.names: dict[Uuid, str] = {}
        self.replicas: dict[tuple[Uuid, int], tuple[BrokerId, ...]] = {}
        self.log_dirs: dict[BrokerId, tuple[Uuid, ...]] = {}
        self.next_offset = 0

    def replay(self, record: MetadataRecord) -> None:
        match record:
            case TopicCreated():
                self.names[record.topic] = record.name
            case TopicDeleted():
                self.names.pop(record.topic, None)
            case PartitionCreated() | PartitionChanged():
                self.replicas[record.topic, record.partition] = record.view.replicas
            case BrokerRegistered():
                self.log_dirs[record.broker] = record.log_dirs
            case _:
                pass

    def partitions(self, here: frozenset[Uuid]) -> set[TopicPartition]:
        """Those whose replicas cannot lie anywhere else."""
        return {
            (self.names[topic], Partition(number))
            for (topic, number), brokers in self.replicas.items()
            if topic in self.names and all(self._lies_in(one, here) for one in brokers)
        }

    def _lies_in(self, broker: BrokerId, here: frozenset[Uuid]) -> bool:
        known = self.log_dirs.get(broker)
        return bool(known) and here.issuperset(known or ())


def noted_partitions(places: Sequence[Path], here: frozenset[Uuid]) -> set[TopicPartition]:
    """Those whose replicas' log directories are all `here`."""
    found: set[TopicPartition] = set()
    for place in places:
        folder = Path(coordinator_directory(str(place))) / _LOG
        try:
            found |= _read(folder).partitions(here)
        except (OSError, CorruptError, WireError, Rejected):
            continue  # what cannot be read is not known
    return found


def _read(folder: Path) -> _Noted:
    names = [path.name for path in folder.iterdir()]
    noted = _newest_snapshot(folder, names)
    for base in sorted(offsets_with_suffix(names, LOG_SUFFIX)):
        if base > noted.next_offset:
            return _Noted()  # what lies between is not here
        for offset, record in _records(folder / file_name(base, LOG_SUFFIX)):
            if offset >= noted.next_offset:
                noted.replay(record)
                noted.next_offset = offset + 1
    return noted


def _newest_snapshot(folder: Path, names: Sequence[str]) -> _Noted:
    """The newest that is whole; nothing if there is none, and the log is to be read from 0."""
    snapshots = sorted(filter(_SNAPSHOT.fullmatch, names), reverse=True)
    whole = (_snapshot(folder / name) for name in snapshots)
    return next((one for one in whole if one is not None), _Noted())


def _snapshot(path: Path) -> _Noted | None:
    """None where it is not whole."""
    noted = _Noted()
    last: MetadataRecord | None = None
    try:
        for _, record in _records(path):
            noted.replay(record)
            last = record
    except (CorruptError, WireError, Rejected):
        return None
    noted.next_offset = int(path.name.partition("-")[0])
    return noted if isinstance(last, SnapshotEnded) else None


def _records(path: Path) -> Iterator[tuple[int, MetadataRecord]]:
    """Up to the first batch that is not whole: that was being written when the cluster ended."""
    for _, batch in iterate_batches(memoryview(path.read_bytes())):
        if not check_crc(batch):
            return
        for record in iterate_records(batch):
            yield (
                record.offset,
                decode(record.value or b"", place=str(path), position=record.offset),
            )
