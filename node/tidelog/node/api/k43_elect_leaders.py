"""ElectLeaders (key 43), versions 0-2. v2 flexible. The coordinator decides."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.node.api import pieces
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.parts import ANYWAY, Parting, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k43_elect_leaders import (
    API,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

_WEIGHT: Final = 4
_NO_NEWS: Final = frozenset({ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""What is not told of a partition that nobody named: it may have been deleted meanwhile."""


def elect_leaders(call: Call, request: ElectLeadersRequest) -> object | None:
    if _is_wide(call, request):
        return in_parts(call, _in_pieces(call, request))

    def refusal(code: ErrorCode) -> ElectLeadersResponse:
        # Version 0 has no code for the whole: each partition that was named says why.
        results = [
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=partition, error_code=code)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
        return ElectLeadersResponse(error_code=code, replica_election_results=results)

    forward(call, request.timeout_ms, refusal)
    return None


def _is_wide(call: Call, request: ElectLeadersRequest) -> bool:
    named = request.topic_partitions
    if named is None:
        return pieces.is_wide([_WEIGHT * call.broker.image.partitions_count])
    return pieces.is_wide(1 + _WEIGHT * len(asked.partitions) for asked in named)


class _Place(NamedTuple):
    """One partition that is named, or meant."""

    at: int
    topic: str
    partition: int


def _in_pieces(call: Call, request: ElectLeadersRequest) -> Parts:
    places = yield from _places(call, request)
    kind = pieces.Kind[_Place](
        key=lambda place: place.at,
        weight=lambda _: _WEIGHT,
        request=lambda some: ElectLeadersRequest(
            election_type=request.election_type,
            topic_partitions=_by_topic(some),
            timeout_ms=request.timeout_ms,
        ),
        rows=_rows,
        refusal=lambda place, code: PartitionResult(partition_id=place.partition, error_code=code),
        code=lambda told: told.error_code,
        together=lambda place: place.topic,  # as the controller answers them
    )
    done = yield from pieces.decided_in_pieces(call, request.timeout_ms, places, kind)
    if done.refused and request.topic_partitions is None:
        return ElectLeadersResponse(error_code=done.refused)
    results: dict[str, ReplicaElectionResult] = {}
    turn = Turn()
    for place, row in zip(places, done.rows.values(), strict=True):
        if turn.is_over():
            yield ANYWAY
        if request.topic_partitions is not None or row.error_code not in _NO_NEWS:
            result = results.setdefault(place.topic, ReplicaElectionResult(topic=place.topic))
            result.partition_result.append(row)
    return ElectLeadersResponse(
        error_code=done.refused, replica_election_results=list(results.values())
    )


def _places(call: Call, request: ElectLeadersRequest) -> Parting[list[_Place]]:
    turn = Turn()
    places: list[_Place] = []
    for topic, partition in _meant(call, request):
        if turn.is_over():
            yield ANYWAY
        places.append(_Place(len(places), topic, partition))
    return places


def _meant(call: Call, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    """All partitions that are named; where none is, all that there are."""
    if request.topic_partitions is not None:
        for asked in request.topic_partitions:
            yield from ((asked.topic, partition) for partition in asked.partitions)
        return
    for topic in list(call.broker.image.topics.values()):
        yield from ((topic.name, partition) for partition in range(len(topic.partitions)))


def _by_topic(places: list[_Place]) -> list[TopicPartitions]:
    named: dict[str, list[int]] = {}
    for place in places:
        named.setdefault(place.topic, []).append(place.partition)
    return [TopicPartitions(topic=topic, partitions=some) for topic, some in named.items()]


def _rows(told: ElectLeadersResponse) -> list[PartitionResult]:
    return [row for result in told.replica_election_results for row in result.partition_result]


ROUTE = Route(API, range(3), elect_leaders, "preferred and unclean")
