"""How many partitions and replicas a new topic gets, and where: as asked, or as placed by us."""

from collections.abc import Sequence

from tidelog.coordinator.controller.assignment import Start, assign, growing
from tidelog.coordinator.controller.draws import Draws
from tidelog.coordinator.controller.elections import new_partition
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.limits import PARTITIONS_PER_TOPIC_MAX
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import CreatableReplicaAssignment, CreatableTopic
from tidelog.wire.metadata_records import PartitionView

DEFAULT = -1
"""What a request says where it leaves a number to us."""


def place(
    topic: CreatableTopic, image: MetadataImage, settings: ControllerSettings, draws: Draws
) -> list[PartitionView]:
    """One view for each partition; Rejected where it cannot be done."""
    if topic.assignments:
        return _as_assigned(topic, image)
    replication_factor = _replication_factor(topic, image, settings)
    partitions = range(_partitions(topic, settings))
    check_factor(image, replication_factor)
    count = len(image.active())
    start = Start(broker=draws.randrange(count), shift=draws.randrange(count))
    return _spread(image, start, partitions, replication_factor)


def place_more(topic: TopicView, image: MetadataImage, partitions: range) -> list[PartitionView]:
    """More partitions of a topic, in the order of those it has, each with as many replicas."""
    first = topic.partitions[0].target
    check_factor(image, len(first))
    start = growing(_active(image), first[0])
    return _spread(image, start, partitions, len(first))


def _active(image: MetadataImage) -> dict[BrokerId, str | None]:
    return {broker: image.brokers[broker].rack for broker in image.active()}


def _spread(
    image: MetadataImage, start: Start, partitions: range, replication_factor: int
) -> list[PartitionView]:
    """New partitions over the brokers. Fenced ones get replicas only where the others are too few,
    and lead nothing: they catch up when they come."""
    active = _active(image)
    placed = assign(
        active,
        partitions=partitions,
        replication_factor=min(replication_factor, len(active)),
        start=start,
    )
    missing = replication_factor - len(active)
    if missing > 0:
        others = sorted(image.brokers.keys() - active.keys())
        placed = [
            (*replicas, *(others[(partition + n) % len(others)] for n in range(missing)))
            for partition, replicas in zip(partitions, placed, strict=True)
        ]
    return [new_partition(replicas, image.is_active) for replicas in placed]


def check_factor(image: MetadataImage, factor: int) -> None:
    """INVALID_REPLICATION_FACTOR where so many replicas cannot be."""
    known = len(image.brokers)
    if not image.active():
        why = "All brokers are currently fenced."
    elif factor > known:
        why = (
            f"The target replication factor of {factor} cannot be reached because only "
            f"{known} broker(s) are registered."
        )
    else:
        return
    raise Rejected(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {factor} time(s): {why}",
    )


def _replication_factor(
    topic: CreatableTopic, image: MetadataImage, settings: ControllerSettings
) -> int:
    asked = topic.replication_factor
    if asked < DEFAULT or asked == 0:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    return settings.replicas_by_default(image) if asked == DEFAULT else asked


def _partitions(topic: CreatableTopic, settings: ControllerSettings) -> int:
    asked = topic.num_partitions
    if asked < DEFAULT or asked == 0:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if asked > PARTITIONS_PER_TOPIC_MAX:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"{asked} partitions asked for, a topic has at most {PARTITIONS_PER_TOPIC_MAX}.",
        )
    return settings.partitions_default if asked == DEFAULT else asked


def _as_assigned(topic: CreatableTopic, image: MetadataImage) -> list[PartitionView]:
    if topic.replication_factor != DEFAULT:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        )
    if topic.num_partitions != DEFAULT:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    replicas = _by_partition(topic.assignments)
    replication_factor = len(replicas[0])
    for partition, brokers in enumerate(replicas):
        check_replicas(brokers, image, replication_factor)
        if not any(image.is_active(broker) for broker in brokers):
            raise _bad(
                "All brokers specified in the manual partition assignment for partition "
                f"{partition} are fenced or in controlled shutdown."
            )
    return [new_partition(brokers, image.is_active) for brokers in replicas]


def _by_partition(assignments: Sequence[CreatableReplicaAssignment]) -> list[tuple[BrokerId, ...]]:
    if len(assignments) > PARTITIONS_PER_TOPIC_MAX:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"{len(assignments)} partitions asked for, a topic has at most "
            f"{PARTITIONS_PER_TOPIC_MAX}.",
        )
    replicas: dict[int, tuple[BrokerId, ...]] = {}
    for one in assignments:
        if one.partition_index in replicas:
            raise _bad(
                f"Found multiple manual partition assignments for partition {one.partition_index}"
            )
        replicas[one.partition_index] = tuple(BrokerId(broker) for broker in one.broker_ids)
    if set(replicas) != set(range(len(replicas))):
        raise _bad("partitions should be a consecutive 0-based integer sequence")
    return [replicas[partition] for partition in range(len(replicas))]


def check_replicas(
    brokers: Sequence[BrokerId], image: MetadataImage, replication_factor: int
) -> None:
    """INVALID_REPLICA_ASSIGNMENT where one partition may not lie on these."""
    if not brokers:
        raise _bad("The manual partition assignment includes an empty replica list.")
    for broker in sorted(brokers):  # Kafka names the lowest one that is wrong
        if broker not in image.brokers:
            raise _bad(
                f"The manual partition assignment includes broker {broker}, but no such broker "
                "is registered."
            )
        if brokers.count(broker) > 1:
            raise _bad(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
    if len(brokers) != replication_factor:
        raise _bad(
            f"The manual partition assignment includes a partition with {len(brokers)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def _bad(detail: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
