"""WriteTxnMarkers (key 27), version 1: ends transactions in partitions that this broker leads.

The transaction coordinator does not come this way; an operator does, where a transaction was left
open that no coordinator knows of (`kafka-transactions abort`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.ids import NO_EPOCH, Epoch, ProducerEpoch, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.call import Call
from tidelog.node.api.parts import ANYWAY, Parts, Turn, in_parts
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
_MARKERS_PER_TURN: Final = 100
"""Each is a batch in a log."""


def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> object | None:
    return in_parts(call, _written(call, request))


def _written(call: Call, request: WriteTxnMarkersRequest) -> Parts:
    """All of them are written also if the client leaves after the first."""
    turn, gathering = Turn(), _Gathering(call)
    for asked in request.markers:
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        gathering.answer.markers.append(result)
        for topic in asked.topics:
            told = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(told)
            indexes = topic.partition_indexes
            for start in range(0, len(indexes), _MARKERS_PER_TURN):
                some = indexes[start : start + _MARKERS_PER_TURN]
                if turn.is_over(len(some) * (limits.ROWS_PER_STEP // _MARKERS_PER_TURN)):
                    yield ANYWAY
                told.partitions += gathering.mark(asked, topic.name, some)
    gathering.end()
    return None


class _Gathering:
    """The answer while it comes together: of each marker, what became of it in each partition."""

    def __init__(self, call: Call) -> None:
        self.answer = WriteTxnMarkersResponse()
        self._call = call
        self._deadline = Instant(call.now + ms(_WAIT_MS))
        self._waits_for = 1
        """The number of parts that are not decided, and 1 while more of them may come."""

    def mark(
        self, asked: WritableTxnMarker, topic: str, indexes: Sequence[int]
    ) -> list[WritableTxnMarkerPartitionResult]:
        """Write a marker into some partitions; the rows get their codes when that is decided."""
        rows = [
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
            for index in indexes
        ]
        if topic == STATE_TOPIC:
            # Nobody but its coordinator writes to what keeps transactions.
            for row in rows:
                row.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return rows
        call = self._call
        self._waits_for += 1
        call.broker.marks.mark(
            call.now,
            Epoch(asked.coordinator_epoch),
            [_marker(asked, topic, index) for index in indexes],
            call.later(partial(self._done, rows)),
            self._deadline,
        )
        return rows

    def end(self) -> None:
        """No further part comes."""
        self._waits_for -= 1
        if not self._waits_for and not self._call.abandoned:
            self._call.answer(self.answer)

    def _done(
        self,
        rows: Sequence[WritableTxnMarkerPartitionResult],
        _now: Instant,
        outcomes: tuple[ErrorCode, ...],
    ) -> None:
        for row, code in zip(rows, outcomes, strict=True):
            row.error_code = code
        self.end()


def _marker(asked: WritableTxnMarker, topic: str, index: int) -> Marker:
    return Marker(
        topic=topic,
        partition=index,
        leader_epoch=NO_EPOCH,
        producer_id=ProducerId(asked.producer_id),
        producer_epoch=ProducerEpoch(asked.producer_epoch),
        committed=asked.transaction_result,
    )


ROUTE = Route(API, range(1, 2), write_txn_markers, "ends what no coordinator knows of")
