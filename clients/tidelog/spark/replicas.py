"""Which replicas of a partition lie in folders of this machine, and how far their files count.

A replica's files hold more than is committed, and another leader's history may follow: only what is
below a high watermark is the partition's. A broker writes its own beside its logs, now and then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import ZERO_UUID, Partition, TopicPartition, Uuid, uuid_from_text
from tidelog.wire import checkpoints
from tidelog.wire.log_files import LOG_SUFFIX, offsets_with_suffix

_LOG_FOLDERS: Final = ("", "*", "broker-*", "broker-*/*")
"""What is named may be a folder of logs itself, a broker's, or a cluster's."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One folder of segments."""

    folder: Path
    broker: int
    topic_id: Uuid
    """ZERO_UUID where its folder does not say."""
    start: int
    committed: int
    """The high watermark, as its broker wrote it last: it may be higher by now."""
    may_have_holes: bool
    """Whether it was compacted, so that offsets are missing with right."""


def replicas_of(places: Sequence[Path], partition: TopicPartition) -> list[Replica]:
    """All that are found; which of them may be read depends on who asks."""
    name = f"{partition[0]}-{partition[1]}"
    found = []
    for logs in _log_folders(places):
        folder = logs / name
        try:
            replica = _replica(logs, folder, partition) if folder.is_dir() else None
        except (OSError, CorruptError, ValueError):
            continue  # what cannot be read now may be in another one's folder
        if replica is not None:
            found.append(replica)
    return found


def partitions_in(places: Sequence[Path]) -> set[TopicPartition]:
    """All of which there is a folder."""
    names = (one.name for logs in _log_folders(places) for one in logs.iterdir() if one.is_dir())
    parts = (name.rpartition("-") for name in names)
    return {(topic, Partition(int(number))) for topic, _, number in parts if number.isdecimal()}


def log_directories_in(places: Sequence[Path]) -> frozenset[Uuid]:
    """The ids of all that brokers have signed."""
    found = set()
    for logs in _log_folders(places):
        meta = checkpoints.META_PROPERTIES
        said = checkpoints.decode_properties((logs / meta).read_bytes(), place=meta)
        if "directory.id" in said:
            found.add(uuid_from_text(said["directory.id"]))
    return frozenset(found)


def _log_folders(places: Sequence[Path]) -> Iterator[Path]:
    """Folders that a broker has signed."""
    seen = set()
    for place in places:
        for pattern in _LOG_FOLDERS:
            signs = place.glob(f"{pattern}/{checkpoints.META_PROPERTIES}".lstrip("/"))
            for signed in sorted(signs):
                folder = signed.parent.resolve()
                if folder not in seen:
                    seen.add(folder)
                    yield folder


def _replica(logs: Path, folder: Path, partition: TopicPartition) -> Replica | None:
    meta = checkpoints.META_PROPERTIES
    said = checkpoints.decode_properties((logs / meta).read_bytes(), place=meta)
    bases = offsets_with_suffix([path.name for path in folder.iterdir()], LOG_SUFFIX)
    if not bases:
        return None
    metadata = folder / checkpoints.PARTITION_METADATA
    content = metadata.read_bytes() if metadata.is_file() else None
    starts = _table(logs, checkpoints.LOG_STARTS)
    return Replica(
        folder=folder,
        broker=int(said.get("node.id", "-1")),
        topic_id=checkpoints.decode_partition_metadata(content),
        start=max(min(bases), starts.get(partition, 0)),
        committed=_table(logs, checkpoints.HIGH_WATERMARKS).get(partition, 0),
        may_have_holes=partition in _table(logs, checkpoints.CLEANED),
    )


def _table(logs: Path, name: str) -> checkpoints.Offsets:
    path = logs / name
    return checkpoints.decode_offsets(path.read_bytes(), place=name) if path.is_file() else {}


def same_topic(replica: Replica, topic_id: Uuid | None) -> bool:
    """Whether it can be of that topic: a name may have been another topic's before."""
    return topic_id is None or replica.topic_id in {ZERO_UUID, topic_id}
