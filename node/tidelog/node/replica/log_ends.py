"""What this broker has of partitions that nobody leads: the coordinator may have to choose."""

from collections.abc import Callable, Iterable

from tidelog.kernel.ids import NO_OFFSET, Epoch, Offset, Partition, TopicPartition
from tidelog.node.metadata.image import TopicView
from tidelog.node.replica.replicas import Replicas
from tidelog.wire.control import LogEnd


def log_ends(
    places: Iterable[tuple[TopicView, int]],
    replicas: Replicas,
    high_watermark: Callable[[TopicPartition], Offset],
) -> tuple[LogEnd, ...]:
    """One for each place; a log whose files cannot be used has nothing. `high_watermark` is the one
    on disk: it may lie above what is left of the log."""
    ends = []
    for topic, partition in places:
        key = (topic.name, Partition(partition))
        replica = replicas.get(key)
        ends.append(
            LogEnd(
                topic=topic.id,
                partition=partition,
                leader_epoch=topic.partitions[partition].leader_epoch,
                last_epoch=Epoch(-1) if replica is None else replica.log.epochs.latest,
                end=NO_OFFSET if replica is None else Offset(replica.log.end),
                high_watermark=(
                    NO_OFFSET
                    if replica is None
                    else max(high_watermark(key), replica.high_watermark)
                ),
            )
        )
    return tuple(ends)
