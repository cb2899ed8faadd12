"""What the coordinator must know of the files here: what was lost before this life, and what there
is of partitions that nobody leads."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, Offset, Partition, TopicPartition
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.marks import LastStop
from tidelog.node.metadata.image import TopicView
from tidelog.node.replica.replicas import Replicas
from tidelog.wire.control import LogEnd
from tidelog.wire.metadata_records import StopKind

_STOP_KINDS: Final = {
    LastStop.NEVER_RAN: StopKind.FIRST_START,
    LastStop.CLEAN: StopKind.CLEAN,
    LastStop.KILLED: StopKind.KILLED,
    LastStop.POWER_LOSS: StopKind.POWER_LOSS,
}


def stop_kind(logs: LogDirectory | LogDirectories) -> StopKind:
    """How the last life ended that the cluster knows of: one that lost files and was over before
    anyone heard of it counts, though a kill came after it."""
    stopped = _STOP_KINDS[logs.last_stop]
    if logs.lost_files and stopped in {StopKind.CLEAN, StopKind.KILLED}:
        return StopKind.POWER_LOSS
    return stopped


def log_ends(
    places: Iterable[tuple[TopicView, int]],
    replicas: Replicas,
    high_watermark: Callable[[TopicPartition], Offset],
) -> tuple[LogEnd, ...]:
    """One for each place; a log whose files cannot be used has nothing. `high_watermark` is the one
    on disk: it may lie above what is left of the log."""
    return tuple(_end_of(topic, partition, replicas, high_watermark) for topic, partition in places)


def _end_of(
    topic: TopicView,
    partition: int,
    replicas: Replicas,
    high_watermark: Callable[[TopicPartition], Offset],
) -> LogEnd:
    key = (topic.name, Partition(partition))
    replica = replicas.get(key)
    last_epoch, end, water = NO_EPOCH, NO_OFFSET, NO_OFFSET
    start, missing = Offset(0), 0
    if replica is not None:
        # Damage found here is told when somebody asks for the partition.
        with suppress(CorruptError, OSError):
            log = replica.log
            last_epoch = log.epochs.latest
            end, start = Offset(log.end), Offset(log.start)
            missing = 0 if log.missing_from is None else max(0, start - log.missing_from)
            water = max(high_watermark(key), replica.known_committed)
    return LogEnd(
        topic=topic.id,
        partition=partition,
        leader_epoch=topic.partitions[partition].leader_epoch,
        last_epoch=last_epoch,
        end=end,
        high_watermark=water,
        start=start,
        missing=missing,
    )
