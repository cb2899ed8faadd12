"""AddOffsetsToTxn (key 25), versions 0-4. v2 PRODUCER_FENCED, v3 flexible.

A group's offsets lie in a partition of `__consumer_offsets`: it is what becomes part of the
transaction.
"""

from functools import partial

from tidelog.node.api import internal_topics, transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k25_add_offsets_to_txn import (
    API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> object | None:
    if not request.group_id:
        return _refusal(ErrorCode.INVALID_GROUP_ID)
    if OFFSETS_TOPIC in call.broker.image.names:
        return transaction_calls.forward(call, request.transactional_id, _refusal)
    # Nobody looked for a group yet.
    go_on = partial(_with_groups, call, request.transactional_id, bytes(call.frame))
    internal_topics.create(call, internal_topics.OFFSETS, go_on)
    return None


def _with_groups(call: Call, transactional_id: str, frame: bytes) -> None:
    """The topic that keeps groups is there, unless it could not be made."""
    if OFFSETS_TOPIC not in call.broker.image.names:
        call.answer(_refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    refused = transaction_calls.forward(call, transactional_id, _refusal, frame)
    if refused is not None:
        call.answer(refused)


def _refusal(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


ROUTE = Route(API, range(5), add_offsets_to_txn, "a group's partition of __consumer_offsets")
