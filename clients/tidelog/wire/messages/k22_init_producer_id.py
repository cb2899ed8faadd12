"""InitProducerId (key 22), versions 0-5, flexible from 2.

v3 a known producer asks for its next epoch, v4 PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE.
"""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, message, row


@message
class InitProducerIdRequest:
    transactional_id: str | None = row(STRING, nullable="0+")
    transaction_timeout_ms: int = row(INT32)
    producer_id: int = row(INT64, "3+", default=-1)
    producer_epoch: int = row(INT16, "3+", default=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    producer_id: int = row(INT64, default=-1)
    producer_epoch: int = row(INT16)


API = ApiSchema(
    key=22,
    name="InitProducerId",
    versions=range(6),
    flexible_from=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
