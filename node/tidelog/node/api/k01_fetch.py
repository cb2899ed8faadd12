"""Fetch (key 1), versions 4-17. v7 sessions, v9 leader epochs, v11 racks, v12 divergence, v13 topic
ids, v16 leader hints.

Answers carry ranges of log files: the bytes pass through this process only where they come from the
disk, to be checked. Followers serve
consumers too (KIP-392), below their own high watermark. Not done: fetches of followers (replication
does not use this API), aborted transactions (there are none yet).
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, BrokerId, Offset, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, Want, WantKey
from tidelog.node.api.leader_hints import MOVED, hint
from tidelog.node.api.read_replicas import nearest
from tidelog.node.api.registry import Route
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.waiting import Waiter
from tidelog.node.settings import RACK_AWARE_SELECTOR
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k01_fetch import (
    API,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidelog.wire.primitives import Records

_ZSTD_VERSION: Final = 10
_RACK_VERSION: Final = 11
"""From here on a client may be sent to a follower, and a follower serves it."""
_BY_ID_VERSION: Final = 13
_HINTS_VERSION: Final = 16
_READ_COMMITTED: Final = 1
_NOTHING: Final = b""
_WAIT_MS_MAX: Final = 300_000


class _Plan:
    """One fetch: what is wanted, and how the answer is to be shaped."""

    __slots__ = ("call", "partial", "request", "session", "wants")

    def __init__(self, call: Call, request: FetchRequest) -> None:
        self.call = call
        self.request = request
        self.session: FetchSession | None = None
        self.partial = False
        """Only what changed is listed: an incremental fetch of a session."""
        self.wants: Iterable[Want] = ()


def fetch(call: Call, request: FetchRequest) -> FetchResponse | None:
    if request.replica_id >= 0 or (
        request.replica_state is not None and request.replica_state.replica_id >= 0
    ):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        plan = _plan(call, request)
    except Rejected as refused:
        return FetchResponse(error_code=refused.code)
    rows, size, settled = _look(plan)
    if settled or size >= request.min_bytes or request.max_wait_ms <= 0:
        return _answer(plan, rows)
    _wait(plan, size)
    return None


def _plan(call: Call, request: FetchRequest) -> _Plan:
    plan = _Plan(call, request)
    number, epoch = request.session_id, request.session_epoch
    sessions = call.broker.sessions
    by_id = call.version >= _BY_ID_VERSION
    if epoch not in {FINAL_EPOCH, INITIAL_EPOCH}:
        session = sessions.continued(call.now, number, epoch, by_id=by_id)
        sessions.update(session, _wants(request), _forgotten(request))
        session.next_epoch()
        plan.session, plan.partial = session, True
        plan.wants = list(session.wants.values())
        return plan
    sessions.close(number)
    wants = list({want.key: want for want in _wants(request)}.values())
    plan.wants = wants
    if epoch == INITIAL_EPOCH and wants:
        plan.session = sessions.create(call.now, wants, by_id=by_id)
    return plan


def _wants(request: FetchRequest) -> Iterator[Want]:
    for topic in request.topics:
        for asked in topic.partitions:
            want = Want(topic.topic, topic.topic_id, asked.partition)
            want.fetch_offset = asked.fetch_offset
            want.size_max = asked.partition_max_bytes
            want.leader_epoch = asked.current_leader_epoch
            want.last_fetched_epoch = asked.last_fetched_epoch
            yield want


def _forgotten(request: FetchRequest) -> Iterator[WantKey]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield (topic.topic or topic.topic_id, partition)


def _look(plan: _Plan) -> tuple[list[tuple[Want, PartitionData]], int, bool]:
    """A row for every wanted partition, the bytes in them, and whether waiting is of no use.

    That is so after an error, and where nothing is wanted that could ever come.
    """
    broker = plan.call.broker
    left = min(plan.request.max_bytes, broker.settings["fetch.max.bytes"])
    rows: list[tuple[Want, PartitionData]] = []
    total = 0
    settled = True
    failed = False
    for want in plan.wants:
        try:
            row = _read(plan, want, left, first=total == 0)
        except Rejected as refused:
            failed = True
            row = _refusal(want, refused.code)
        assert row.records is not None
        size = len(row.records)
        total += size
        left -= size
        settled = False
        failed = failed or row.diverging_epoch is not None or row.preferred_read_replica >= 0
        rows.append((want, row))
    return rows, total, settled or failed


def _read(plan: _Plan, want: Want, left: int, *, first: bool) -> PartitionData:
    replica = _find(plan.call, want)
    if plan.call.version < _ZSTD_VERSION and replica.rules.codec is Codec.ZSTD:
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    nearer = _nearer(plan, want, replica)
    if nearer is not None:
        row = _row(want, replica, _NOTHING, None)
        row.preferred_read_replica = nearer
        return row
    log, end = replica.log, replica.high_watermark
    with partitions.storage_errors(plan.call.broker, replica):
        diverging = _divergence(replica, want)
    if diverging is not None:
        return _row(want, replica, _NOTHING, diverging)
    if not log.start <= want.fetch_offset:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE)
    if want.fetch_offset > end:
        _above(replica, want)
    records: Records = _NOTHING
    size_max = min(want.size_max, left)
    if want.fetch_offset < end and (size_max > 0 or first):
        records = _records(plan, want, replica, size_max, first=first)
    return _row(want, replica, records, None)


def _records(plan: _Plan, want: Want, replica: Replica, size_max: int, *, first: bool) -> Records:
    on_failure, end = plan.call.broker.on_storage_failure, replica.high_watermark
    try:
        found = replica.log.read(want.fetch_offset, max(0, size_max), end, min_one=first)
    except (OSError, CorruptError) as failure:
        on_failure(replica.key, failure)
        raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
    if found is None:
        return _NOTHING
    found.on_bad = partial(on_failure, replica.key)
    return found


def _above(replica: Replica, want: Want) -> None:
    """Nothing can be read there now; refuse what may never be read there.

    After an election the high watermark may be behind what consumers have read already. And a
    follower that is behind cannot know what the leader has.
    """
    if replica.leader is None:
        raise Rejected(ErrorCode.OFFSET_NOT_AVAILABLE)
    if want.fetch_offset > replica.log.end:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE)


def _nearer(plan: _Plan, want: Want, replica: Replica) -> BrokerId | None:
    """The follower that the client should read from, where the leader may name one (KIP-392)."""
    broker, rack = plan.call.broker, plan.request.rack_id
    if replica.leader is None or not rack:
        return None
    if broker.settings["replica.selector.class"] != RACK_AWARE_SELECTOR:
        return None
    return nearest(
        replica.leader,
        me=broker.me,
        offset=Offset(want.fetch_offset),
        rack=rack,
        brokers=broker.image.brokers,
    )


def _find(call: Call, want: Want) -> Replica:
    broker = call.broker
    name = want.topic
    if call.version >= _BY_ID_VERSION:
        topic = broker.image.topics.get(want.topic_id)
        if topic is None or want.topic_id == ZERO_UUID:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    if call.version >= _RACK_VERSION:
        return partitions.readable(broker, name, want.partition, epoch=want.leader_epoch)
    replica, _ = partitions.led(broker, name, want.partition, epoch=want.leader_epoch)
    return replica


def _divergence(replica: Replica, want: Want) -> EpochEndOffset | None:
    """Where the client's log and ours part, if they do (KIP-595's rule for KIP-320)."""
    if want.last_fetched_epoch < 0:
        return None
    log = replica.log
    epoch, end = log.epochs.end_of(want.last_fetched_epoch, log.end)
    if epoch == NO_EPOCH:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch this log never had")
    if epoch == want.last_fetched_epoch and end >= want.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)


def _row(
    want: Want,
    replica: Replica,
    records: Records,
    diverging: EpochEndOffset | None,
) -> PartitionData:
    high_watermark = replica.high_watermark
    return PartitionData(
        partition_index=want.partition,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=replica.log.start,
        diverging_epoch=diverging,
        aborted_transactions=None,
        records=records,
    )


def _refusal(want: Want, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=want.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=_NOTHING,
    )


def _wait(plan: _Plan, size: int) -> None:
    """Look again when enough bytes have come, or the time is up."""
    call, request = plan.call, plan.request

    def wake(_now: Instant) -> None:
        if not call.abandoned:
            rows, _, _ = _look(plan)
            call.answer(_answer(plan, rows))

    deadline = Instant(call.now + ms(min(request.max_wait_ms, _WAIT_MS_MAX)))
    keys = tuple({key for want in plan.wants if (key := _key(call, want)) is not None})
    call.park(Waiter(keys, deadline, wake, missing=request.min_bytes - size))


def _key(call: Call, want: Want) -> TopicPartition | None:
    try:
        return _find(call, want).key
    except Rejected:
        return None


def _answer(plan: _Plan, rows: list[tuple[Want, PartitionData]]) -> FetchResponse:
    session = plan.session
    counters = plan.call.broker.counters
    counters.fetches += 1
    committed = plan.request.isolation_level == _READ_COMMITTED
    responses: list[FetchableTopicResponse] = []
    endpoints: dict[int, NodeEndpoint] = {}
    for want, row in rows:
        assert row.records is not None
        size = len(row.records)
        counters.fetched_bytes += size
        if session is not None:
            if plan.partial and not _news(want, row):
                continue
            _note_told(session, want, row)
        if committed and not row.error_code:
            row.aborted_transactions = []
        _add_hint(plan.call, want, row, endpoints)
        _list(responses, want, row)
    return FetchResponse(
        session_id=session.number if session else 0,
        responses=responses,
        node_endpoints=list(endpoints.values()),
    )


def _add_hint(
    call: Call, want: Want, row: PartitionData, endpoints: dict[int, NodeEndpoint]
) -> None:
    """Say where the partition is led now; by that version topics are asked for by id."""
    if row.error_code not in MOVED or call.version < _HINTS_VERSION:
        return
    topic = call.broker.image.topics.get(want.topic_id)
    found = None if topic is None else hint(call.broker, topic.name, want.partition)
    if found is not None:
        at = found.broker
        row.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.epoch)
        endpoints[at.id] = NodeEndpoint(node_id=at.id, host=at.host, port=at.port, rack=at.rack)


def _news(want: Want, row: PartitionData) -> bool:
    """Whether an incremental answer must list the partition."""
    assert row.records is not None
    return bool(
        len(row.records)
        or row.error_code
        or row.diverging_epoch is not None
        or row.preferred_read_replica >= 0
        or row.high_watermark != want.told_high_watermark
        or row.log_start_offset != want.told_start
    )


def _note_told(session: FetchSession, want: Want, row: PartitionData) -> None:
    # After an error the client must be told everything again.
    want.told_high_watermark = -1 if row.error_code else row.high_watermark
    want.told_start = -1 if row.error_code else row.log_start_offset
    assert row.records is not None
    if len(row.records):
        session.served(want)


def _list(responses: list[FetchableTopicResponse], want: Want, row: PartitionData) -> None:
    last = responses[-1] if responses else None
    if last is not None and last.topic == want.topic and last.topic_id == want.topic_id:
        last.partitions.append(row)
        return
    responses.append(
        FetchableTopicResponse(topic=want.topic, topic_id=want.topic_id, partitions=[row])
    )


ROUTE = Route(API, range(4, 18), fetch, "long poll, sendfile, sessions, closest replica")
