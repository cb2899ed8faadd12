"""How many partitions and replicas a new topic gets, and where: as asked, or as placed by us."""

from collections.abc import Sequence

from tidelog.coordinator.controller.assignment import Start, assign
from tidelog.coordinator.controller.draws import Draws
from tidelog.coordinator.controller.elections import new_partition
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.limits import PARTITIONS_PER_TOPIC_MAX
from tidelog.node.metadata.image import MetadataImage
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
        return _as_assigned(topic, image, settings)
    replication_factor = _replication_factor(topic, image, settings)
    partitions = _partitions(topic, settings)
    brokers = image.alive()
    start = Start(broker=draws.randrange(len(brokers)), shift=draws.randrange(len(brokers)))
    placed = assign(
        brokers, partitions=range(partitions), replication_factor=replication_factor, start=start
    )
    return [new_partition(replicas, image.is_alive) for replicas in placed]


def _replication_factor(
    topic: CreatableTopic, image: MetadataImage, settings: ControllerSettings
) -> int:
    asked = topic.replication_factor
    if asked < DEFAULT or asked == 0:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    factor = settings.replication_factor_default if asked == DEFAULT else asked
    alive, known = len(image.alive()), len(image.brokers)
    if not alive:
        why = "All brokers are currently fenced."
    elif factor > known:
        why = (
            f"The target replication factor of {factor} cannot be reached because only "
            f"{known} broker(s) are registered."
        )
    elif factor > alive:
        why = (
            f"The target replication factor of {factor} cannot be reached because only "
            f"{alive} broker(s) are unfenced."
        )
    elif factor > settings.replication_factor_max:
        why = f"Partitions have at most {settings.replication_factor_max} replica(s) here."
    else:
        return factor
    raise Rejected(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {factor} time(s): {why}",
    )


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


def _as_assigned(
    topic: CreatableTopic, image: MetadataImage, settings: ControllerSettings
) -> list[PartitionView]:
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
        if not any(image.is_alive(broker) for broker in brokers):
            raise _bad(
                "All brokers specified in the manual partition assignment for partition "
                f"{partition} are fenced or in controlled shutdown."
            )
    if replication_factor > settings.replication_factor_max:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Partitions have at most {settings.replication_factor_max} replica(s) here.",
        )
    return [new_partition(brokers, image.is_alive) for brokers in replicas]


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
    for broker in brokers:
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
