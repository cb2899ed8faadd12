"""Fetch (key 1), versions 4-18, flexible from 12.

v5 log start offset, v7 sessions, v9 leader epoch, v10 zstd, v11 rack, v12 diverging epochs, v13
topic ids in place of names, v15 the follower's identity moves into a tag, v16 where the leader
went, v17-18 only followers send more.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Records
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ReplicaState:
    replica_id: int = row(INT32, "15+", default=-1)
    replica_epoch: int = row(INT64, "15+", default=-1)


@message
class FetchPartition:
    partition: int = row(INT32)
    current_leader_epoch: int = row(INT32, "9+", default=-1)
    fetch_offset: int = row(INT64)
    last_fetched_epoch: int = row(INT32, "12+", default=-1)
    log_start_offset: int = row(INT64, "5+", default=-1)
    partition_max_bytes: int = row(INT32)
    replica_directory_id: Uuid = row(UUID, "17+", tag=0)
    high_watermark: int = row(INT64, "18+", default=9223372036854775807, tag=1)


@message
class FetchTopic:
    topic: str = row(STRING, "0-12")
    topic_id: Uuid = row(UUID, "13+")
    partitions: list[FetchPartition] = row(array(FetchPartition))


@message
class ForgottenTopic:
    topic: str = row(STRING, "7-12")
    topic_id: Uuid = row(UUID, "13+")
    partitions: list[int] = row(array(INT32), "7+")


@message
class FetchRequest:
    cluster_id: str | None = row(STRING, "12+", nullable="12+", default=None, tag=0)
    replica_id: int = row(INT32, "0-14", default=-1)
    replica_state: ReplicaState | None = row(ReplicaState, "15+", tag=1)
    max_wait_ms: int = row(INT32)
    min_bytes: int = row(INT32)
    max_bytes: int = row(INT32, default=2147483647)
    isolation_level: int = row(INT8)
    session_id: int = row(INT32, "7+")
    session_epoch: int = row(INT32, "7+", default=-1)
    topics: list[FetchTopic] = row(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = row(array(ForgottenTopic), "7+")
    rack_id: str = row(STRING, "11+")


@message
class EpochEndOffset:
    epoch: int = row(INT32, "12+", default=-1)
    end_offset: int = row(INT64, "12+", default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: int = row(INT32, "12+", default=-1)
    leader_epoch: int = row(INT32, "12+", default=-1)


@message
class SnapshotId:
    end_offset: int = row(INT64, default=-1)
    epoch: int = row(INT32, default=-1)


@message
class AbortedTransaction:
    producer_id: int = row(INT64)
    first_offset: int = row(INT64)


@message
class PartitionData:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)
    high_watermark: int = row(INT64)
    last_stable_offset: int = row(INT64, default=-1)
    log_start_offset: int = row(INT64, "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = row(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = row(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = row(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = row(
        array(AbortedTransaction), nullable="0+"
    )
    preferred_read_replica: int = row(INT32, "11+", default=-1)
    records: Records | None = row(RECORDS, nullable="0+")


@message
class FetchableTopicResponse:
    topic: str = row(STRING, "0-12")
    topic_id: Uuid = row(UUID, "13+")
    partitions: list[PartitionData] = row(array(PartitionData))


@message
class NodeEndpoint:
    node_id: int = row(INT32, "16+")
    host: str = row(STRING, "16+")
    port: int = row(INT32, "16+")
    rack: str | None = row(STRING, "16+", nullable="16+", default=None)


@message
class FetchResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16, "7+")
    session_id: int = row(INT32, "7+")
    responses: list[FetchableTopicResponse] = row(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = row(array(NodeEndpoint), "16+", tag=0)


API = ApiSchema(
    key=1,
    name="Fetch",
    versions=range(4, 19),
    flexible_from=12,
    request=FetchRequest,
    response=FetchResponse,
)
