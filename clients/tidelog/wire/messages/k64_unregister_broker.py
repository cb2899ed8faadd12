"""UnregisterBroker (key 64), version 0, all flexible."""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, message, row


@message
class UnregisterBrokerRequest:
    broker_id: int = row(INT32)


@message
class UnregisterBrokerResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")


API = ApiSchema(
    key=64,
    name="UnregisterBroker",
    versions=range(1),
    flexible_from=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
)
