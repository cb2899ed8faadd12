"""Have the cluster forget a broker. To ask again changes nothing: it is known as gone then."""

from tidelog.clients.admin.topics import at_controller
from tidelog.clients.asking import Ask, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.kernel.instant import ms
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k64_unregister_broker import API as UNREGISTER
from tidelog.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_GONE = frozenset({ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED})


def unregister_broker(view: ClusterView, broker: int, *, timeout_ms: int = 30_000) -> Plan[bool]:
    """Whether it was known until now. One that lives would register anew: stop it first."""
    ask = Ask(UNREGISTER, UnregisterBrokerRequest(broker_id=broker), timeout_ns=ms(timeout_ms))
    answer: UnregisterBrokerResponse = yield from at_controller(
        view, ask, lambda message: [message]
    )
    code = known_code(answer.error_code)
    if code not in _GONE:
        raise Rejected(code, answer.error_message or f"broker {broker} cannot be unregistered")
    return code is ErrorCode.NONE
