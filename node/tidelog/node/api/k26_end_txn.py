"""EndTxn (key 26), versions 0-5. v2 PRODUCER_FENCED, v3 flexible, v4 TRANSACTION_ABORTABLE, v5
gives the producer its next epoch.
"""

from tidelog.node.api import transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k26_end_txn import API, EndTxnRequest, EndTxnResponse


def end_txn(call: Call, request: EndTxnRequest) -> object | None:
    return transaction_calls.forward(call, request.transactional_id, _refusal)


def _refusal(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


ROUTE = Route(API, range(6), end_txn, "commit and abort")
