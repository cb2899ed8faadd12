"""Produce (key 0), versions 3-13. v7 zstd, v8 record errors, v9 flexible, v10 leader hints, v11
TRANSACTION_ABORTABLE, v12 adds its partitions to the transaction, v13 topic ids.

ApiVersions says the floor is 0, as Kafka's does: librdkafka before 2.12 sends uncompressed batches
to a broker that does not.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import ZERO_UUID, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions
from tidelog.node.api import produce_in_transaction as in_transaction
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.leader_hints import hint
from tidelog.node.api.parts import ANYWAY, Parts, Turn, go_on, in_parts
from tidelog.node.api.produce_aside import (
    Ready,
    Work,
    checked,
    is_wide,
    keep_records,
    long_work,
    make_ready,
)
from tidelog.node.api.produce_in_transaction import Claims
from tidelog.node.api.registry import NO_ANSWER, Route
from tidelog.node.log.contracts import Appended
from tidelog.node.net.client import CloseConnectionError
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, Rejected, fault_text
from tidelog.wire.messages.k00_produce import (
    API,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.records import BatchHeader

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
_HINTS_VERSION: Final = 10
BY_ID_VERSION: Final = 13
"""From it on topics are named by their ids."""


class Pending(NamedTuple):
    """A batch that was appended."""

    replica: Replica
    """As long as it leads, in this epoch or another one, its log holds the batch: only who follows
    cuts its log, and when it stops to lead whoever waits for it is woken at once."""
    row: PartitionProduceResponse
    end: Offset
    """The offset behind it."""
    alone: bool = False
    """It need be on this replica only."""
    leader: Leader | None = None
    """Under which it was appended."""

    @property
    def was_led_all_along(self) -> bool:
        """Whether this replica certainly did not follow since the append."""
        return self.replica.leader is self.leader

    @property
    def is_done(self) -> bool:
        replica = self.replica
        return (replica.vouched if self.alone else replica.high_watermark) >= self.end

    def outcome(self) -> ErrorCode | None:
        """None while that is not decided."""
        leader = self.replica.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.alone:
            return ErrorCode.NONE if leader.own >= self.end else None
        if not leader.enough_in_sync():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE if leader.high_watermark >= self.end else None


class _Prepared(NamedTuple):
    """What was found out about batches before they are appended, by their rows in the request."""

    claims: Claims
    ready: Ready


_NOTHING: Final = _Prepared({}, {})


def produce(call: Call, request: ProduceRequest) -> object | None:
    if call.version >= BY_ID_VERSION:
        for topic in request.topic_data:
            topic.name = call.broker.image.name_of(topic.topic_id)
    if not -1 <= request.acks <= 1:
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    fault = in_transaction.fault(request, call.version)
    if fault is not None:
        return _refuse_all(request, fault)
    if request.transactional_id is not None and in_transaction.ask_first(
        call, request, partial(_checked_in, call, request)
    ):
        return None
    work = long_work(call, request)
    if work or is_wide(request):
        call.hold()
        keep_records(call, request)
        _do_aside(call, request, {}, work)
        return None
    return in_parts(call, _appended(call, request, _NOTHING))


def _checked_in(call: Call, request: ProduceRequest, now: Instant, claims: Claims) -> None:
    """The transaction coordinator has said its word."""
    call.now = now
    work = long_work(call, request)
    if work:
        _do_aside(call, request, claims, work)
    else:
        _go_on(call, request, claims, now, {})


def _do_aside(call: Call, request: ProduceRequest, claims: Claims, work: Sequence[Work]) -> None:
    go_on = call.later(partial(_go_on, call, request, claims))
    call.broker.aside(make_ready(work), go_on)


def _appended(call: Call, request: ProduceRequest, prepared: _Prepared) -> Parts:
    """Append all batches of a request, with other clients' requests in between if they are many.

    A client that wants no answer may disconnect as soon as it has sent them: all are appended.
    """
    pending: list[Pending] = []
    answers: list[TopicProduceResponse] = []
    turn = Turn()
    try:
        for topic in request.topic_data:
            rows: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                if turn.is_over():
                    yield ANYWAY if request.acks == ACKS_NONE else None
                rows.append(_append(call, topic, data, request.acks, pending, prepared))
            answers.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            )
    finally:
        call.let_go()
    still_led = _still_led(pending)
    return finish(call, request.acks, request.timeout_ms, answers, still_led)


def _still_led(pending: Sequence[Pending]) -> list[Pending]:
    """Refuse batches of earlier parts if this replica may have followed since they were appended:
    nobody was woken then, and its log may hold another leader's records at their offsets."""
    still_led: list[Pending] = []
    for item in pending:
        if item.was_led_all_along:
            still_led.append(item)
        else:
            _fail(item.row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return still_led


def finish(
    call: Call,
    acks: int,
    timeout_ms: int,
    answers: list[TopicProduceResponse],
    pending: Sequence[Pending],
) -> object | None:
    """What a handler returns, once each batch is appended or refused."""
    if acks == ACKS_NONE:
        _close_on_error(answers)
        return NO_ANSWER
    answer = ProduceResponse(responses=answers)
    waiting = [item for item in pending if not item.is_done]
    if waiting:
        deadline = Instant(call.now + ms(max(0, timeout_ms)))
        _wait(call, answer, waiting, deadline)
        return None
    return _with_hints(call, answer)


def _go_on(call: Call, request: ProduceRequest, claims: Claims, now: Instant, ready: Ready) -> None:
    """A client that is gone meanwhile has its records appended all the same, as if it had been
    quicker to serve."""
    call.now = now
    go_on(call, _appended(call, request, _Prepared(claims, ready)))


def _append(
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    pending: list[Pending],
    prepared: _Prepared,
) -> PartitionProduceResponse:
    """Append one partition's batch; its row of the answer. What was appended goes to `pending`."""
    try:
        item = _take(call, topic, data, acks, prepared)
    except Rejected as refused:
        return refusal(data.index, refused)
    pending.append(item)
    return item.row


def _take(
    call: Call, topic: TopicProduceData, data: PartitionProduceData, acks: int, prepared: _Prepared
) -> Pending:
    """Append one partition's batch, or refuse it."""
    broker = call.broker
    if call.version >= BY_ID_VERSION and not topic.name:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID)
    replica, leader = partitions.led(broker, topic.name, data.index)
    if topic.topic_id not in (ZERO_UUID, replica.topic_id):
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID)  # the name is another topic's by now
    if topic.name in INTERNAL_TOPICS:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write internal topics")
    records = data.records
    if records is None:
        raise Rejected(ErrorCode.INVALID_RECORD, "no batch")
    if broker.replicas.retiring:
        raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
    if acks == ACKS_ALL and not leader.enough_in_sync():
        raise Rejected(ErrorCode.NOT_ENOUGH_REPLICAS)
    claims, ready = prepared
    batch = ready.get(id(data)) if ready else None
    if batch is None:
        batch = checked(records, replica.rules, call.now_ms, call.version)
    elif isinstance(batch, Exception):
        raise batch
    records, header = batch
    if header.is_transactional:
        with partitions.storage_errors(broker, replica):
            in_transaction.admit(call, replica, leader, header, claims.get(id(data)))
    appended = append(broker, call.now, call.now_ms, replica, leader, records, header)
    end = Offset(appended.last_offset + 1)
    row = row_of(data.index, appended)
    return Pending(replica, row, end, alone=acks != ACKS_ALL, leader=leader)


def append(  # noqa: PLR0913, PLR0917 -- called for each batch, from two places
    broker: Broker,
    now: Instant,
    now_ms: int,
    replica: Replica,
    leader: Leader,
    records: memoryview,
    header: BatchHeader,
) -> Appended:
    """Append a batch that was checked, and let the followers have it."""
    try:
        appended = replica.log.append_as_leader(now, now_ms, records, header, leader.epoch)
    except (OSError, CorruptError) as failure:
        broker.on_storage_failure(replica.key, failure)
        raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
    except Rejected:
        raise
    except REQUEST_FAULTS as fault:
        # The batch was checked before: the log may hold half of it now.
        raise AssertionError(f"a checked batch failed: {fault_text(fault)}") from fault
    if not appended.duplicate:
        broker.counters.produced_batches += 1
        broker.counters.produced_bytes += len(records)
        try:
            broker.replication.appended(now, replica, records)
        except REQUEST_FAULTS as fault:
            raise AssertionError(f"replicating failed: {fault_text(fault)}") from fault
    return appended


def row_of(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start,
    )


def refusal(index: int, refused: Rejected) -> PartitionProduceResponse:
    """The row of a batch that was not appended."""
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
                topic_id=topic.topic_id,
                partition_responses=[refusal(data.index, refused) for data in topic.partition_data],
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
    call: Call, answer: ProduceResponse, waiting: Sequence[Pending], deadline: Instant
) -> None:
    """Answer once every partition's outcome is decided, or at the deadline."""

    def ready() -> bool:
        return all(item.outcome() is not None for item in waiting)

    def wake(now: Instant) -> None:
        if call.abandoned:
            return
        left = _settled(waiting)
        if left and now < deadline:
            _wait(call, answer, left, deadline)  # another partition lost its leader
            return
        for item in left:
            _fail(item.row, ErrorCode.REQUEST_TIMED_OUT)
        call.answer(_with_hints(call, answer))

    keys = tuple({item.replica.key for item in waiting})
    call.park(Waiter(keys, deadline, wake, missing=0, ready=ready))


def _settled(waiting: Sequence[Pending]) -> list[Pending]:
    """Write down what is decided; what is not is left."""
    left: list[Pending] = []
    for item in waiting:
        outcome = item.outcome()
        if outcome is None:
            left.append(item)
        elif outcome is not ErrorCode.NONE:
            _fail(item.row, outcome)
    return left


def _fail(row: PartitionProduceResponse, code: ErrorCode) -> None:
    row.error_code = code
    row.base_offset = -1
    row.log_append_time_ms = -1


def _with_hints(call: Call, answer: ProduceResponse) -> ProduceResponse:
    """Say of partitions that are led elsewhere where that is."""
    if call.version < _HINTS_VERSION:
        return answer
    endpoints: dict[int, NodeEndpoint] = {}
    moved = (
        (topic.name, row)
        for topic in answer.responses
        for row in topic.partition_responses
        if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    for name, row in moved:
        found = hint(call.broker, name, row.index)
        if found is not None:
            at = found.broker
            row.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.epoch)
            endpoints[at.id] = NodeEndpoint(node_id=at.id, host=at.host, port=at.port, rack=at.rack)
    answer.node_endpoints = list(endpoints.values())
    return answer


ROUTE = Route(
    api=API,
    versions=range(3, 14),
    handle=produce,
    note="acks 0, 1 and all; idempotent; in transactions (versions 1 and 2)",
    advertised_min=0,
)
