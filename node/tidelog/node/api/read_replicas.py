"""Which replica a consumer should read from (KIP-392): the one in its rack, as Kafka's own selector
decides.
"""

from collections.abc import Mapping

from tidelog.kernel.ids import BrokerId, Offset
from tidelog.node.metadata.image import BrokerView
from tidelog.node.replica.leader import Leader


def nearest(
    leader: Leader,
    *,
    me: BrokerId,
    offset: Offset,
    rack: str,
    brokers: Mapping[BrokerId, BrokerView],
) -> BrokerId | None:
    """Of the in-sync followers in the client's rack that hold `offset`, the one that holds most;
    None where the leader is in that rack, or none of them is.
    """
    if brokers[me].rack == rack:
        return None
    found: list[tuple[Offset, BrokerId]] = []
    for broker in leader.in_sync:
        member, view = leader.member(broker), brokers.get(broker)
        if member is None or view is None or view.fenced or view.rack != rack:
            continue
        if member.log_start <= offset <= member.vouched:
            found.append((member.vouched, broker))
    return max(found)[1] if found else None
