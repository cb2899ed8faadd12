"""ListTransactions (key 66), versions 0-2. v1 how long they are open, v2 a pattern of their ids.

Each broker lists the ids of those partitions of `__transaction_state` that it leads: whoever asks
all brokers hears of each id once.
"""

from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.groups.patterns import check_pattern
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k66_list_transactions import (
    API,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidelog.wire.transactions import STATE_TOPIC


def list_transactions(
    call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse | None:
    broker = call.broker
    if STATE_TOPIC not in broker.image.names:
        return _of_none(request.transactional_id_pattern)

    def answer(said: ListTransactionsResponse | ErrorCode) -> ListTransactionsResponse:
        if isinstance(said, ErrorCode):
            return ListTransactionsResponse(error_code=said)
        said.transaction_states = [
            row
            for row in said.transaction_states
            if transaction_calls.speaks_for(broker, row.transactional_id)
        ]
        return said

    transaction_calls.ask(call, request, answer)
    return None


def _of_none(pattern: str | None) -> ListTransactionsResponse:
    """There are no ids yet. An expression that is none is one all the same."""
    try:
        check_pattern(pattern or "")
    except Rejected as refused:
        return ListTransactionsResponse(error_code=refused.code)
    return ListTransactionsResponse()


ROUTE = Route(API, range(3), list_transactions, "ids whose partition is led here")
