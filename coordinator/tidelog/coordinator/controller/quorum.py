"""DescribeQuorum: the metadata log as Kafka's tools know one. Its one voter is the coordinator, and
every broker that follows it is an observer.

Told of what is committed: from the feed, without a record.
"""

from tidelog.coordinator.controller.feed import Feed, Session
from tidelog.kernel.ids import COORDINATOR_ID, TRANSACTIONS_ID, Offset
from tidelog.kernel.instant import Instant, WallMs
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


def describe_quorum(
    feed: Feed, request: DescribeQuorumRequest, *, now: Instant, wall_offset_ns: int, end: Offset
) -> DescribeQuorumResponse:
    """`end` is the end of the log, with what is not committed yet."""
    asked = [
        (row.topic_name, part.partition_index) for row in request.topics for part in row.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)

    def wall(instant: Instant) -> WallMs:
        return WallMs((instant + wall_offset_ns) // 1_000_000)

    def observer(session: Session) -> ReplicaState:
        has_all = session.applied >= feed.image.offset
        view = feed.image.brokers.get(session.broker)
        return ReplicaState(
            replica_id=session.broker,
            replica_directory_id=next(iter(view.log_dirs), _NO_DIRECTORY)
            if view
            else _NO_DIRECTORY,
            log_end_offset=session.applied + 1,
            # Nothing is sent to whom nothing is missing: it would have fetched, and found nothing.
            last_fetch_timestamp=wall(now if has_all else session.heard),
            last_caught_up_timestamp=wall(now if has_all else session.caught_up),
        )

    # The transaction coordinator follows too, and is nothing that Kafka's tools know.
    brokers = [one for one in feed.sessions.values() if one.broker != TRANSACTIONS_ID]
    leader = ReplicaState(
        replica_id=COORDINATOR_ID,
        log_end_offset=end,
        last_fetch_timestamp=wall(now),
        last_caught_up_timestamp=wall(now),
    )
    partition = PartitionData(
        leader_id=COORDINATOR_ID,
        leader_epoch=feed.image.controller_epoch,
        high_watermark=feed.image.offset + 1,
        current_voters=[leader],
        observers=[observer(one) for one in sorted(brokers, key=_broker_of)],
    )
    # The node has no address: nobody but brokers speaks to the coordinator.
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=COORDINATOR_ID)],
    )


_NO_DIRECTORY = bytes(16)


def _broker_of(session: Session) -> int:
    return session.broker


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """As Kafka: one that asks of more than the metadata's one partition learns nothing of that."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=row.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=part.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for part in row.partitions
                ],
            )
            for row in request.topics
        ]
    )
