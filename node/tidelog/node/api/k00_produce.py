"""Produce (key 0), versions 3-11. v7 zstd, v8 record errors, v9 flexible, v10 leader hints.

Not done: transactions (no transactional id can be had yet), versions 12 and 13 (they come with
transaction protocol 2 and with topic ids in produce). ApiVersions says the floor is 0, as Kafka's
does: librdkafka before 2.12 sends uncompressed batches to a broker that does not.
"""

from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.registry import NO_ANSWER, Route
from tidelog.node.log.recompress import recompressed
from tidelog.node.log.validation import validate_produced
from tidelog.node.net.client import CloseConnectionError
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k00_produce import (
    API,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
_ZSTD_VERSION: Final = 7
_ZSTD: Final = 4


_Pending = tuple[Replica, PartitionProduceResponse, int]
"""A batch that was appended: where, its row of the answer, and the offset behind it."""


def produce(call: Call, request: ProduceRequest) -> object | None:
    acks = request.acks
    if not -1 <= acks <= 1:
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    pending: list[_Pending] = []
    answers = [
        TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                _append(call, topic.name, data, acks, pending) for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if acks == ACKS_NONE:
        _close_on_error(answers)
        return NO_ANSWER
    answer = ProduceResponse(responses=answers)
    if acks == ACKS_ALL:
        waiting = [item for item in pending if item[0].high_watermark < item[2]]
        if waiting:
            _wait(call, request, answer, waiting)
            return None
    return answer


def _append(
    call: Call, topic: str, data: PartitionProduceData, acks: int, pending: list[_Pending]
) -> PartitionProduceResponse:
    """Append one partition's batch; its row of the answer. What was appended goes to `pending`."""
    try:
        replica, row, end = _take(call, topic, data, acks)
    except Rejected as refused:
        return _refusal(data.index, refused)
    pending.append((replica, row, end))
    return row


def _take(call: Call, topic: str, data: PartitionProduceData, acks: int) -> _Pending:
    """Append one partition's batch, or refuse it."""
    broker = call.broker
    replica, leader = partitions.led(broker, topic, data.index)
    if topic in INTERNAL_TOPICS:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write internal topics")
    records = data.records
    if records is None:
        raise Rejected(ErrorCode.INVALID_RECORD, "no batch")
    if acks == ACKS_ALL and not leader.enough_in_sync():
        raise Rejected(ErrorCode.NOT_ENOUGH_REPLICAS)
    log = replica.log
    header = validate_produced(records, replica.rules, call.now_ms)
    if header.codec_bits == _ZSTD and call.version < _ZSTD_VERSION:
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7")
    codec = replica.rules.codec
    if codec is not None and codec != header.codec_bits:
        records, header = recompressed(records, header, replica.rules)
    try:
        appended = log.append_as_leader(call.now, call.now_ms, records, header, leader.epoch)
    except (OSError, CorruptError) as failure:
        broker.on_storage_failure(replica.key, failure)
        raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
    if not appended.duplicate:
        broker.counters.produced_batches += 1
        broker.counters.produced_bytes += len(records)
        broker.replication.appended(call.now, replica, records)
    row = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start,
    )
    return replica, row, appended.last_offset + 1


def _refusal(index: int, refused: Rejected) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=reason)
            for record, reason in refused.records
        ],
        error_message=refused.detail or None,
    )


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    refused = Rejected(code)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    _refusal(data.index, refused) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _close_on_error(answers: list[TopicProduceResponse]) -> None:
    """With acks=0 nothing can be answered: ending the connection is how the client learns of it."""
    for topic in answers:
        for row in topic.partition_responses:
            if row.error_code:
                name = f"{topic.name}-{row.index}"
                raise CloseConnectionError(
                    f"produce with acks=0 to {name}: {ErrorCode(row.error_code).name}"
                )


def _wait(
    call: Call,
    request: ProduceRequest,
    answer: ProduceResponse,
    pending: list[_Pending],
) -> None:
    """Answer once every partition's high watermark has passed its batch."""

    def ready() -> bool:
        return all(
            replica.leader is not None and replica.high_watermark >= end
            for replica, _, end in pending
        )

    def wake(_now: Instant) -> None:
        for replica, row, end in pending:
            if replica.leader is None:
                _fail(row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif replica.high_watermark < end:
                _fail(row, ErrorCode.REQUEST_TIMED_OUT)
        if not call.abandoned:
            call.answer(answer)

    keys = tuple({replica.key for replica, _, _ in pending})
    deadline = Instant(call.now + ms(max(0, request.timeout_ms)))
    call.park(Waiter(keys, deadline, wake, missing=0, ready=ready))


def _fail(row: PartitionProduceResponse, code: ErrorCode) -> None:
    row.error_code = code
    row.base_offset = -1
    row.log_append_time_ms = -1


ROUTE = Route(
    api=API,
    versions=range(3, 12),
    handle=produce,
    note="acks 0, 1 and all; idempotent; no transactions yet",
    advertised_min=0,
)
