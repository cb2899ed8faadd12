"""DescribeTransactions (key 65), version 0, all flexible."""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DescribeTransactionsRequest:
    transactional_ids: list[str] = row(array(STRING))


@message
class TopicData:
    topic: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class TransactionState:
    error_code: int = row(INT16)
    transactional_id: str = row(STRING)
    transaction_state: str = row(STRING)
    transaction_timeout_ms: int = row(INT32)
    transaction_start_time_ms: int = row(INT64)
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT16)
    topics: list[TopicData] = row(array(TopicData))


@message
class DescribeTransactionsResponse:
    throttle_time_ms: int = row(INT32)
    transaction_states: list[TransactionState] = row(array(TransactionState))


API = ApiSchema(
    key=65,
    name="DescribeTransactions",
    versions=range(1),
    flexible_from=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
