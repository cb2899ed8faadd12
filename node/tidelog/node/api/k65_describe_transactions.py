"""DescribeTransactions (key 65), version 0."""

from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, cost_of_name, each_once, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k65_describe_transactions import (
    API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> object | None:
    return in_parts(call, _described(call, request))


def _described(call: Call, request: DescribeTransactionsRequest) -> Parts:
    turn, refused = Turn(), dict[str, ErrorCode]()
    names = yield from each_once(request.transactional_ids, turn)
    for name in names:
        if turn.is_over(cost_of_name(name)):
            yield None
        refused[name] = _refusal_of(call, name)
    mine = [name for name in names if refused[name] is ErrorCode.NONE]

    def answer(said: DescribeTransactionsResponse | ErrorCode) -> DescribeTransactionsResponse:
        code, rows = ErrorCode.UNKNOWN_SERVER_ERROR, {}
        if isinstance(said, ErrorCode):
            code = said
        else:
            rows = {row.transactional_id: row for row in said.transaction_states}
        return DescribeTransactionsResponse(
            transaction_states=[
                rows.get(name) or _refused(name, refused[name] or code) for name in names
            ]
        )

    if not mine:
        return answer(DescribeTransactionsResponse())
    transaction_calls.ask(call, DescribeTransactionsRequest(transactional_ids=mine), answer)
    return None


def _refusal_of(call: Call, name: str) -> ErrorCode:
    if not name:
        return ErrorCode.INVALID_REQUEST
    if not transaction_calls.speaks_for(call.broker, name):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.NONE


def _refused(name: str, code: ErrorCode) -> TransactionState:
    return TransactionState(
        transactional_id=name,
        error_code=code,
        transaction_state="",
        transaction_timeout_ms=-1,
        transaction_start_time_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        topics=[],
    )


ROUTE = Route(API, range(1), describe_transactions, "of ids whose partition is led here")
