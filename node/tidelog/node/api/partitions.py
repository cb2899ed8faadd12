"""Finding the partition that a request names, and what its files may do to the answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.kernel.failures import CorruptError
from tidelog.node.api.broker import Broker
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode, Rejected


def led(broker: Broker, topic: str, index: int, *, epoch: int = -1) -> tuple[Replica, Leader]:
    """As `Replicas.led`, but one that is on another broker is told from one that is nowhere."""
    try:
        return broker.replicas.led(topic, index, epoch=epoch)
    except Rejected as refused:
        raise _told_apart(broker, topic, index, refused) from None


def readable(broker: Broker, topic: str, index: int, *, epoch: int = -1) -> Replica:
    """As `Replicas.readable`, and as `led` in what it tells apart."""
    try:
        return broker.replicas.readable(topic, index, epoch=epoch)
    except Rejected as refused:
        raise _told_apart(broker, topic, index, refused) from None


def _told_apart(broker: Broker, topic: str, index: int, refused: Rejected) -> Rejected:
    if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and exists(broker, topic, index):
        return Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return refused


def exists(broker: Broker, topic: str, index: int) -> bool:
    """Whether the cluster has that partition, wherever it is."""
    view = broker.image.names.get(topic)
    return view is not None and 0 <= index < len(view.partitions)


@contextmanager
def storage_errors(broker: Broker, replica: Replica) -> Iterator[None]:
    """What the partition's files refuse becomes the answer's error, and is reported."""
    try:
        yield
    except (OSError, CorruptError) as failure:
        raise storage_error(broker, replica, failure) from failure


def storage_error(broker: Broker, replica: Replica, failure: Exception) -> Rejected:
    """Report what the partition's files refuse; the answer's error."""
    broker.on_storage_failure(replica.key, failure)
    return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
