"""AlterPartitionReassignments (key 45), versions 0-1, all flexible. The coordinator decides."""

from typing import NamedTuple

from tidelog.kernel.limits import PARTITIONS_PER_DECISION_MAX
from tidelog.node.api import pieces
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import TOO_MANY_PARTITIONS, forward
from tidelog.node.api.parts import Parts, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


class _Move(NamedTuple):
    """One partition that is named."""

    at: int
    topic_at: int
    topic: str
    partition: ReassignablePartition


def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> object | None:
    def refusal(code: ErrorCode, reason: str | None = None) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=code,
            error_message=reason,
            responses=[],
        )

    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_PER_DECISION_MAX:
        return refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
    if pieces.is_wide(_weight(one) for topic in request.topics for one in topic.partitions):
        return in_parts(call, _in_pieces(call, request))
    forward(call, request.timeout_ms, refusal)
    return None


def _in_pieces(call: Call, request: AlterPartitionReassignmentsRequest) -> Parts:
    moves: list[_Move] = []
    for topic_at, topic in enumerate(request.topics):
        for one in topic.partitions:
            moves.append(_Move(len(moves), topic_at, topic.name, one))

    def some(piece: list[_Move]) -> AlterPartitionReassignmentsRequest:
        named: dict[int, ReassignableTopic] = {}
        for move in piece:
            topic = named.setdefault(move.topic_at, ReassignableTopic(name=move.topic))
            topic.partitions.append(move.partition)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=request.timeout_ms,
            allow_replication_factor_change=request.allow_replication_factor_change,
            topics=list(named.values()),
        )

    kind = pieces.Kind[_Move](
        key=lambda move: move.at,
        weight=lambda move: _weight(move.partition),
        request=some,
        rows=lambda told: [row for topic in told.responses for row in topic.partitions],
        refusal=lambda move, code: ReassignablePartitionResponse(
            partition_index=move.partition.partition_index, error_code=code, error_message=None
        ),
        code=lambda told: told.error_code,
    )
    done = yield from pieces.decided_in_pieces(call, request.timeout_ms, moves, kind)
    responses = [ReassignableTopicResponse(name=topic.name) for topic in request.topics]
    if not done.refused:
        for move, row in zip(moves, done.rows.values(), strict=True):
            responses[move.topic_at].partitions.append(row)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=done.refused,
        error_message=None,
        responses=[] if done.refused else responses,
    )


def _weight(partition: ReassignablePartition) -> int:
    return 2 + len(partition.replicas or ()) // 4


ROUTE = Route(API, range(2), alter_partition_reassignments, "moves, adds and removes replicas")
