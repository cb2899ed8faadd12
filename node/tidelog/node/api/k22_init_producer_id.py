"""InitProducerId (key 22), versions 0-5. v2 flexible, v3 the producer's current id and epoch.

An idempotent producer gets the next id of a block; of a transactional id the coordinator decides.
"""

from tidelog.kernel.ids import ProducerId
from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k22_init_producer_id import (
    API,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def init_producer_id(call: Call, request: InitProducerIdRequest) -> object | None:
    if request.transactional_id is not None:
        return transaction_calls.forward(call, request.transactional_id, _refusal)

    def taken(producer_id: ProducerId | ErrorCode) -> None:
        if call.abandoned:
            return
        if isinstance(producer_id, ErrorCode):
            call.answer(_refusal(producer_id))
        else:
            call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    call.broker.producer_ids.take(call.later(taken))
    return None


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


ROUTE = Route(API, range(6), init_producer_id, "idempotent producers, transactional ids")
