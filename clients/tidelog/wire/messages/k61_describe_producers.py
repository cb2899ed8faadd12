"""DescribeProducers (key 61), version 0, all flexible."""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class TopicRequest:
    name: str = row(STRING)
    partition_indexes: list[int] = row(array(INT32))


@message
class DescribeProducersRequest:
    topics: list[TopicRequest] = row(array(TopicRequest))


@message
class ProducerState:
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT32)
    last_sequence: int = row(INT32, default=-1)
    last_timestamp: int = row(INT64, default=-1)
    coordinator_epoch: int = row(INT32)
    current_txn_start_offset: int = row(INT64, default=-1)


@message
class PartitionResponse:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = row(array(ProducerState))


@message
class TopicResponse:
    name: str = row(STRING)
    partitions: list[PartitionResponse] = row(array(PartitionResponse))


@message
class DescribeProducersResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[TopicResponse] = row(array(TopicResponse))


API = ApiSchema(
    key=61,
    name="DescribeProducers",
    versions=range(1),
    flexible_from=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
