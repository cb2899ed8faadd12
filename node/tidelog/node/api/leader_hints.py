"""Where a partition is led now, for clients that asked the wrong broker (KIP-951).

Produce says it from version 10 on, Fetch from 16: the row names leader and epoch, the answer that
broker's address. Both or neither: a client that has half must ask for metadata all the same.
"""

from typing import Final, NamedTuple

from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch
from tidelog.node.api.broker import Broker
from tidelog.node.metadata.image import BrokerView
from tidelog.wire.errors import ErrorCode

MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Hint(NamedTuple):
    """Who leads, under which epoch, and where it is."""

    leader: BrokerId
    epoch: Epoch
    broker: BrokerView


def hint(broker: Broker, topic: str, index: int) -> Hint | None:
    """None where nobody leads it, or nobody who could be asked."""
    view = broker.image.names.get(topic)
    if view is None or not 0 <= index < len(view.partitions):
        return None
    row = view.partitions[index]
    if row.leader == NO_LEADER or not broker.image.is_alive(row.leader):
        return None
    if row.leader == broker.me and not _leads(broker, topic, index):
        return None  # it should, and cannot: asking again at once would be of no use
    return Hint(row.leader, row.leader_epoch, broker.image.brokers[row.leader])


def _leads(broker: Broker, topic: str, index: int) -> bool:
    replica = broker.replicas.find(topic, index)
    return replica is not None and replica.leader is not None
