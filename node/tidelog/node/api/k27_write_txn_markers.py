"""WriteTxnMarkers (key 27), version 1: ends transactions in partitions that this broker leads.

The transaction coordinator does not come this way; an operator does, where a transaction was left
open that no coordinator knows of (`kafka-transactions abort`).
"""

from collections.abc import Callable
from typing import Final

from tidelog.kernel.ids import NO_EPOCH, Epoch, ProducerEpoch, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k27_write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.transactions import STATE_TOPIC, Marker

_WAIT_MS: Final = 30_000
"""Kafka's `request.timeout.ms` of a broker."""


class _Gathering:
    """The answer while it comes together: of each marker, what became of it in each partition."""

    def __init__(self, call: Call, request: WriteTxnMarkersRequest) -> None:
        self._call = call
        self._rows: list[WritableTxnMarkerResult | None] = [None] * len(request.markers)
        deadline = Instant(call.now + ms(_WAIT_MS))
        for at, asked in enumerate(request.markers):
            call.broker.marks.mark(
                call.now,
                Epoch(asked.coordinator_epoch),
                _markers(asked),
                call.later(self._done_for(at, asked)),
                deadline,
            )
        if not self._rows:
            call.answer(WriteTxnMarkersResponse())

    def _done_for(
        self, at: int, asked: WritableTxnMarker
    ) -> Callable[[Instant, tuple[ErrorCode, ...]], None]:
        def done(_now: Instant, outcomes: tuple[ErrorCode, ...]) -> None:
            self._rows[at] = _result(asked, outcomes)
            rows = [row for row in self._rows if row is not None]
            if len(rows) == len(self._rows) and not self._call.abandoned:
                self._call.answer(WriteTxnMarkersResponse(markers=rows))

        return done


def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> None:
    _Gathering(call, request)


def _markers(asked: WritableTxnMarker) -> list[Marker]:
    """Of topics that take any. Nobody but its coordinator writes to what keeps transactions."""
    return [
        Marker(
            topic=topic.name,
            partition=index,
            leader_epoch=NO_EPOCH,
            producer_id=ProducerId(asked.producer_id),
            producer_epoch=ProducerEpoch(asked.producer_epoch),
            committed=asked.transaction_result,
        )
        for topic in asked.topics
        if topic.name != STATE_TOPIC
        for index in topic.partition_indexes
    ]


def _result(asked: WritableTxnMarker, outcomes: tuple[ErrorCode, ...]) -> WritableTxnMarkerResult:
    codes = iter(outcomes)
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
                        if topic.name == STATE_TOPIC
                        else next(codes),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


ROUTE = Route(API, range(1, 2), write_txn_markers, "ends what no coordinator knows of")
