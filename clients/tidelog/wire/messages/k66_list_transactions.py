"""ListTransactions (key 66), versions 0-2, all flexible.

v1 filters by duration, v2 by a pattern of the id.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ListTransactionsRequest:
    state_filters: list[str] = row(array(STRING))
    producer_id_filters: list[int] = row(array(INT64))
    duration_filter: int = row(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = row(STRING, "2+", nullable="2+", default=None)


@message
class TransactionState:
    transactional_id: str = row(STRING)
    producer_id: int = row(INT64)
    transaction_state: str = row(STRING)


@message
class ListTransactionsResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    unknown_state_filters: list[str] = row(array(STRING))
    transaction_states: list[TransactionState] = row(array(TransactionState))


API = ApiSchema(
    key=66,
    name="ListTransactions",
    versions=range(3),
    flexible_from=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
