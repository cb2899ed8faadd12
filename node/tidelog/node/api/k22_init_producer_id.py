"""InitProducerId (key 22), versions 0-5. v2 flexible, v3 the producer's current id and epoch.

An idempotent producer gets the next id of a block; of a transactional id the coordinator decides.
Who asks far more often than programs do has to wait (`producer_rate.py`).
"""

from typing import Final

from tidelog.kernel.ids import ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.producer_rate import is_too_long
from tidelog.node.api.registry import Route
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k22_init_producer_id import (
    API,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_THROTTLING_VERSION: Final = 4


def init_producer_id(call: Call, request: InitProducerIdRequest) -> object | None:
    wait = call.broker.producer_rate.begin(call.now, call.client.address)
    if not wait:
        return _begin(call, request, None)
    if is_too_long(wait):
        return _throttled(call.version, wait)
    frame = bytes(call.frame)

    def wake(now: Instant) -> None:
        call.now = now
        answer = _begin(call, request, frame)
        if answer is not None:
            call.answer(answer)

    call.park(Waiter((), Instant(call.now + wait), wake, missing=0))
    return None


def _begin(call: Call, request: InitProducerIdRequest, frame: bytes | None) -> object | None:
    if request.transactional_id is not None:
        return transaction_calls.forward(call, request.transactional_id, _refusal, frame)

    def taken(producer_id: ProducerId | ErrorCode) -> None:
        if call.abandoned:
            return
        if isinstance(producer_id, ErrorCode):
            call.answer(_refusal(producer_id))
        else:
            call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    call.broker.producer_ids.take(call.later(taken))
    return None


def _throttled(version: int, wait: int) -> InitProducerIdResponse:
    """What clients try again, in words that their version knows."""
    knows = version >= _THROTTLING_VERSION
    answer = _refusal(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED if knows else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    answer.throttle_time_ms = wait // ms(1)
    return answer


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


ROUTE = Route(API, range(6), init_producer_id, "idempotent producers, transactional ids")
