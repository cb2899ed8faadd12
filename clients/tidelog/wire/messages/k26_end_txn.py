"""EndTxn (key 26), versions 0-5, flexible from 3.

v5 answers with the producer's next epoch (transactions v2).
"""

from tidelog.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, message, row


@message
class EndTxnRequest:
    transactional_id: str = row(STRING)
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT16)
    committed: bool = row(BOOL)


@message
class EndTxnResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    producer_id: int = row(INT64, "5+", default=-1)
    producer_epoch: int = row(INT16, "5+", default=-1)


API = ApiSchema(
    key=26,
    name="EndTxn",
    versions=range(6),
    flexible_from=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
