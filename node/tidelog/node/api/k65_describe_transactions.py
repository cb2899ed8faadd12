"""DescribeTransactions (key 65), version 0."""

from typing import Final

from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, cost_of_name, each_once, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k65_describe_transactions import (
    API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

_FIRST: Final = 8
_MOST: Final = 1_000
"""Ids in a piece; it grows as long as their transactions have no more partitions together."""


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
    rows = yield from _asked(call, mine)
    return DescribeTransactionsResponse(
        transaction_states=[
            rows.get(name) or _refused(name, refused[name] or ErrorCode.UNKNOWN_SERVER_ERROR)
            for name in names
        ]
    )


def _asked(call: Call, names: list[str]) -> Parting[dict[str, TransactionState]]:
    """What the coordinator says of the ids, of some of them at a time: it makes each answer in one
    step of its loop. A transaction may have very many partitions, so the first pieces are small."""
    rows: dict[str, TransactionState] = {}
    start, count = 0, _FIRST
    while start < len(names):
        some = names[start : start + count]
        said = yield transaction_calls.asking(
            call, DescribeTransactionsRequest(transactional_ids=some)
        )
        if isinstance(said, ErrorCode):
            rows.update((name, _refused(name, said)) for name in names[start:])
            return rows
        rows.update((row.transactional_id, row) for row in said.transaction_states)
        start += count
        count = min(2 * count, _MOST) if _partitions(said) <= _MOST else _FIRST
    return rows


def _partitions(said: DescribeTransactionsResponse) -> int:
    """The number of partitions that an answer names."""
    return sum(len(topic.partitions) for row in said.transaction_states for topic in row.topics)


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
