"""AddPartitionsToTxn (key 24), versions 0-5, flexible from 3.

Up to v3 from clients; v4 and v5 from broker to broker, many transactions at once, or only a check.
"""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AddPartitionsToTxnTopic:
    name: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str = row(STRING, "4+")
    producer_id: int = row(INT64, "4+")
    producer_epoch: int = row(INT16, "4+")
    verify_only: bool = row(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = row(array(AddPartitionsToTxnTopic), "4+")


@message
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = row(
        array(AddPartitionsToTxnTransaction), "4+"
    )
    v3_and_below_transactional_id: str = row(STRING, "0-3")
    v3_and_below_producer_id: int = row(INT64, "0-3")
    v3_and_below_producer_epoch: int = row(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = row(array(AddPartitionsToTxnTopic), "0-3")


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
class AddPartitionsToTxnResult:
    transactional_id: str = row(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = row(
        array(AddPartitionsToTxnTopicResult), "4+"
    )


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16, "4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = row(
        array(AddPartitionsToTxnResult), "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = row(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )


API = ApiSchema(
    key=24,
    name="AddPartitionsToTxn",
    versions=range(6),
    flexible_from=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
