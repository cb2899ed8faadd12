"""AddOffsetsToTxn (key 25), versions 0-4, flexible from 3.

v3 PRODUCER_FENCED, v4 TRANSACTION_ABORTABLE.
"""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, message, row


@message
class AddOffsetsToTxnRequest:
    transactional_id: str = row(STRING)
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT16)
    group_id: str = row(STRING)


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)


API = ApiSchema(
    key=25,
    name="AddOffsetsToTxn",
    versions=range(5),
    flexible_from=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
