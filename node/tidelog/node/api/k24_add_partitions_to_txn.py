"""AddPartitionsToTxn (key 24), versions 0-3. v2 PRODUCER_FENCED, v3 flexible.

Versions 4 and 5 are what brokers ask the coordinator themselves. All partitions are added, or none.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions, transaction_calls
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k24_add_partitions_to_txn import (
    API,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

_SOONER: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.CONCURRENT_TRANSACTIONS
}
"""The connection to the coordinator ended, and the next one is there in a moment: clients try both
codes again where they are, but librdkafka this one after 20 ms and the other after 500."""


_MOST: Final = limits.TRANSACTION_PARTITIONS_MAX
"""No transaction can have more. Its coordinator need not read them all before it says so."""


def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> object | None:
    return in_parts(call, _added(call, request))


def _added(call: Call, request: AddPartitionsToTxnRequest) -> Parts:
    turn, refused = Turn(), dict[tuple[str, int], ErrorCode]()
    # The frame lies in the connection's buffer, which the next request overwrites.
    frame = bytes(call.frame)
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            if turn.is_over():
                yield None
            code = _fault(call, topic.name, index)
            if code is not ErrorCode.NONE:
                refused[topic.name, index] = code

    def refusal(code: ErrorCode) -> AddPartitionsToTxnResponse:
        return _answer(request, lambda _one: _SOONER.get(code, code))

    if sum(len(topic.partitions) for topic in request.v3_and_below_topics) > _MOST:
        return _answer(request, lambda _one: ErrorCode.POLICY_VIOLATION)
    if refused:
        other = ErrorCode.OPERATION_NOT_ATTEMPTED
        return _answer(request, lambda one: refused.get(one, other))
    name = request.v3_and_below_transactional_id
    return transaction_calls.forward(call, name, refusal, frame)


def _fault(call: Call, topic: str, index: int) -> ErrorCode:
    """Why a client cannot make this part of its transaction; offsets of a group become part of it
    by AddOffsetsToTxn."""
    if topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not partitions.exists(call.broker, topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _answer(
    request: AddPartitionsToTxnRequest, code_of: Callable[[tuple[str, int]], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code_of((topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


ROUTE = Route(API, range(4), add_partitions_to_txn, "from clients; all partitions or none")
