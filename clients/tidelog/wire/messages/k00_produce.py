"""Produce (key 0), versions 3-13, flexible from 9.

Brokers advertise 0 as the minimum: old librdkafka looks for it before it compresses. v5 log start
offset, v7 zstd, v8 errors of single records, v10 where the leader went (both tags or neither), v12
adds partitions to the transaction, v13 topic ids in place of names.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class PartitionProduceData:
    index: int = row(INT32)
    records: memoryview | None = row(RECORDS, nullable="0+")


@message
class TopicProduceData:
    name: str = row(STRING, "0-12")
    topic_id: Uuid = row(UUID, "13+")
    partition_data: list[PartitionProduceData] = row(array(PartitionProduceData))


@message
class ProduceRequest:
    transactional_id: str | None = row(STRING, nullable="0+", default=None)
    acks: int = row(INT16)
    timeout_ms: int = row(INT32)
    topic_data: list[TopicProduceData] = row(array(TopicProduceData))


@message
class BatchIndexAndErrorMessage:
    batch_index: int = row(INT32, "8+")
    batch_index_error_message: str | None = row(STRING, "8+", nullable="8+", default=None)


@message
class LeaderIdAndEpoch:
    leader_id: int = row(INT32, "10+", default=-1)
    leader_epoch: int = row(INT32, "10+", default=-1)


@message
class PartitionProduceResponse:
    index: int = row(INT32)
    error_code: int = row(INT16)
    base_offset: int = row(INT64)
    log_append_time_ms: int = row(INT64, default=-1)
    log_start_offset: int = row(INT64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = row(array(BatchIndexAndErrorMessage), "8+")
    error_message: str | None = row(STRING, "8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = row(LeaderIdAndEpoch, "10+", tag=0)


@message
class TopicProduceResponse:
    name: str = row(STRING, "0-12")
    topic_id: Uuid = row(UUID, "13+")
    partition_responses: list[PartitionProduceResponse] = row(array(PartitionProduceResponse))


@message
class NodeEndpoint:
    node_id: int = row(INT32, "10+")
    host: str = row(STRING, "10+")
    port: int = row(INT32, "10+")
    rack: str | None = row(STRING, "10+", nullable="10+", default=None)


@message
class ProduceResponse:
    responses: list[TopicProduceResponse] = row(array(TopicProduceResponse))
    throttle_time_ms: int = row(INT32)
    node_endpoints: list[NodeEndpoint] = row(array(NodeEndpoint), "10+", tag=0)


API = ApiSchema(
    key=0,
    name="Produce",
    versions=range(3, 14),
    flexible_from=9,
    request=ProduceRequest,
    response=ProduceResponse,
)
