"""AddPartitionsToTxn (key 24), versions 0-3, flexible from 3.

From v4 only brokers ask, for many transactions at once. Clients of transaction version 2 do not ask
at all: their first produce adds the partition.
"""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AddPartitionsToTxnTopic:
    name: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = row(STRING)
    v3_and_below_producer_id: int = row(INT64)
    v3_and_below_producer_epoch: int = row(INT16)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = row(array(AddPartitionsToTxnTopic))


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: int = row(INT32)
    partition_error_code: int = row(INT16)


@message
class AddPartitionsToTxnTopicResult:
    name: str = row(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = row(
        array(AddPartitionsToTxnPartitionResult)
    )


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = row(INT32)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = row(
        array(AddPartitionsToTxnTopicResult)
    )


API = ApiSchema(
    key=24,
    name="AddPartitionsToTxn",
    versions=range(4),
    flexible_from=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
