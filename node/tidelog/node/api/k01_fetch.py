"""Fetch (key 1), versions 4-18. v7 sessions, v9 leader epochs, v11 racks, v12 divergence, v13 topic
ids, v16 leader hints.

Answers carry ranges of log files: the bytes pass through this process only where they come from the
disk, to be checked. Followers serve
consumers too (KIP-392), below their own high watermark. Who wants only what is committed gets
nothing above the last stable offset, and is told what was aborted below it. Not done: fetches of
followers (replication does not use this API).
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, BrokerId, Offset, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, Want, WantKey
from tidelog.node.api.leader_hints import MOVED, hint
from tidelog.node.api.parts import Parting, Parts, in_parts, in_turns
from tidelog.node.api.read_replicas import nearest
from tidelog.node.api.registry import Route
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.log import Log
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.waiting import Waiter
from tidelog.node.settings import RACK_AWARE_SELECTOR
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k01_fetch import (
    API,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_STORAGE_ERROR_VERSION: Final = 6
_ZSTD_VERSION: Final = 10
_RACK_VERSION: Final = 11
"""From here on a client may be sent to a follower, and a follower serves it."""
_BY_ID_VERSION: Final = 13
_HINTS_VERSION: Final = 16
_READ_COMMITTED: Final = 1
_NOTHING: Final = b""
_NO_FRAME: Final = memoryview(b"")
_WAIT_MS_MAX: Final = 300_000
_NARROW_BYTES: Final = 4 * limits.ROWS_PER_STEP
"""A request takes as many to name more partitions than fit into a turn."""
_ENOUGH: Final = 2**31
"""No request can ask for more bytes."""


_Row = tuple[Want, PartitionData]


class _Plan:
    """One fetch: what is wanted, and how the answer is to be shaped."""

    __slots__ = ("call", "committed", "partial", "request", "session", "wants")

    def __init__(self, call: Call, request: FetchRequest) -> None:
        self.call = call
        self.request = request
        self.committed = request.isolation_level == _READ_COMMITTED
        """Only what is decided is wanted, and what was aborted must be told."""
        self.session: FetchSession | None = None
        self.partial = False
        """Only what changed is listed: an incremental fetch of a session."""
        self.wants: Sequence[Want] = ()


class _Look:
    """What a fetch finds, a row for each wanted partition that has been looked at; its answer."""

    __slots__ = ("_endpoints", "_responses", "failed", "left", "plan", "rows", "size")

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.rows: list[_Row] = []
        self.size = 0
        """Bytes in all rows."""
        self.left = min(plan.request.max_bytes, plan.call.broker.settings["fetch.max.bytes"])
        """Bytes that may still be added."""
        self.failed = False
        self._responses: list[FetchableTopicResponse] = []
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def is_enough(self) -> bool:
        """True if the answer is due now.

        Waiting is of no use after an error, and if no partition is wanted.
        """
        request = self.plan.request
        if self.failed or not self.rows:
            return True
        return self.size >= request.min_bytes or request.max_wait_ms <= 0

    def at(self, wants: Iterable[Want]) -> None:
        """Look at some more of the wanted partitions."""
        plan, rows, total, left = self.plan, self.rows, self.size, self.left
        for want in wants:
            try:
                row = _read(plan, want, left, first=total == 0)
            except Rejected as refused:
                self.failed = True
                row = _refusal(want, _understood(plan.call.version, refused.code))
            assert row.records is not None
            size = len(row.records)
            total += size
            left -= size
            if row.diverging_epoch is not None or row.preferred_read_replica >= 0:
                self.failed = True
            rows.append((want, row))
        self.size, self.left = total, left

    def shape(self, rows: Iterable[_Row]) -> None:
        """Add some of the rows to the answer."""
        plan = self.plan
        call, session, responses = plan.call, plan.session, self._responses
        fetched = 0
        for want, row in rows:
            assert row.records is not None
            fetched += len(row.records)
            if session is not None:
                if plan.partial and not _news(want, row):
                    continue
                _note_told(session, want, row)
            if row.error_code:
                _add_hint(call, want, row, self._endpoints)
            _list(responses, want, row)
        call.broker.counters.fetched_bytes += fetched

    def answer(self) -> FetchResponse:
        session = self.plan.session
        self.plan.call.broker.counters.fetches += 1
        return FetchResponse(
            session_id=session.number if session else 0,
            responses=self._responses,
            node_endpoints=list(self._endpoints.values()),
        )


def fetch(call: Call, request: FetchRequest) -> object | None:
    if request.replica_id >= 0 or (
        request.replica_state is not None and request.replica_state.replica_id >= 0
    ):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if len(call.frame) > _NARROW_BYTES and _named(request) > limits.ROWS_PER_STEP:
        return in_parts(call, _fetched_in_parts(call, request))
    wants = {want.key: want for want in _wants(request)}
    forgotten = _forgotten(request) if request.forgotten_topics_data else ()
    try:
        plan = _plan(call, request, wants, forgotten)
    except Rejected as refused:
        return FetchResponse(error_code=refused.code)
    if len(plan.wants) > limits.ROWS_PER_STEP:
        return in_parts(call, _served_in_parts(plan))
    look = _Look(plan)
    look.at(plan.wants)
    if look.size >= request.min_bytes or look.is_enough:
        look.shape(look.rows)
        return look.answer()
    _wait(look, _keys(call, look.rows))
    return None


def _named(request: FetchRequest) -> int:
    """The number of partitions that the request names itself."""
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        count += len(forgotten.partitions)
    return count


def _plan(
    call: Call,
    request: FetchRequest,
    wants: Mapping[WantKey, Want],
    forgotten: Iterable[WantKey],
) -> _Plan:
    plan = _Plan(call, request)
    number, epoch = request.session_id, request.session_epoch
    sessions = call.broker.sessions
    by_id = call.version >= _BY_ID_VERSION
    if epoch not in {FINAL_EPOCH, INITIAL_EPOCH}:
        session = sessions.continued(call.now, number, epoch, by_id=by_id)
        sessions.update(session, wants.values(), forgotten)
        session.next_epoch()
        plan.session, plan.partial = session, True
        plan.wants = list(session.wants.values())
        return plan
    sessions.close(number)
    plan.wants = list(wants.values())
    if epoch == INITIAL_EPOCH and wants:
        plan.session = sessions.create(call.now, plan.wants, by_id=by_id)
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


def _read(plan: _Plan, want: Want, left: int, *, first: bool) -> PartitionData:
    replica = _find(plan.call, want)
    if plan.call.version < _ZSTD_VERSION and replica.rules.codec is Codec.ZSTD:
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    log, high_watermark = replica.log, replica.high_watermark
    nearer = _nearer(plan, want, replica)
    try:
        stable = log.last_stable_offset(high_watermark)
        diverging = _divergence(replica, want) if nearer is None else None
    except (OSError, CorruptError) as failure:
        raise partitions.storage_error(plan.call.broker, replica, failure) from failure
    row = PartitionData(
        partition_index=want.partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.start,
        diverging_epoch=diverging,
        aborted_transactions=[] if plan.committed else None,
        records=_NOTHING,
    )
    if nearer is not None:
        row.preferred_read_replica = nearer
        return row
    if diverging is not None:
        return row
    if not log.start <= want.fetch_offset:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE)
    if want.fetch_offset > high_watermark:
        _above(replica, want)
    size_max = min(want.size_max, left)
    limit = stable if plan.committed else high_watermark
    if want.fetch_offset < limit and (size_max > 0 or first):
        _add_records(plan, want, replica, row, max(0, size_max), first=first)
    return row


def _add_records(
    plan: _Plan, want: Want, replica: Replica, row: PartitionData, size_max: int, *, first: bool
) -> None:
    broker, log, offset = plan.call.broker, replica.log, want.fetch_offset
    limit = row.last_stable_offset if plan.committed else row.high_watermark
    try:
        found = log.read(offset, size_max, limit, min_one=first)
        if found is None:
            return
        if plan.committed:
            row.aborted_transactions = _aborted(log, offset, found, limit)
            if row.aborted_transactions:
                # There may be so many that the answer is encoded in a thread.
                plan.call.pin(found.file)
    except (OSError, CorruptError) as failure:
        raise partitions.storage_error(broker, replica, failure) from failure
    found.on_bad = partial(broker.on_storage_failure, replica.key)
    found.cache = log.settings.cache
    row.records = found


def _aborted(log: Log, offset: int, found: FileSlice, limit: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in log.aborted(offset, found, limit)
    ]


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
    rack = plan.request.rack_id
    if not rack or replica.leader is None:
        return None
    broker = plan.call.broker
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
        name = broker.image.name_of(want.topic_id)
        if not name or want.topic_id == ZERO_UUID:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID)
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


def _understood(version: int, code: ErrorCode) -> ErrorCode:
    """The code, or the one that makes clients ask elsewhere who do not know it."""
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_VERSION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


def _refusal(want: Want, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=want.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=_NOTHING,
    )


def _wait(look: _Look, found: Mapping[TopicPartition, _Row]) -> None:
    """Look again when enough bytes have come, or the time is up."""
    plan = look.plan
    _let_go(plan)
    waiter = _waiter(plan, partial(_wake, plan))
    waiter.keys = tuple(found)
    waiter.missing -= look.size
    if plan.committed:
        waiter.grown = _Decided(plan.call, found).grown
    plan.call.park(waiter)


def _waiter(plan: _Plan, wake: Callable[[Instant], None]) -> Waiter:
    """One that does not know yet what it waits for."""
    call, request = plan.call, plan.request
    deadline = Instant(call.now + ms(min(request.max_wait_ms, _WAIT_MS_MAX)))
    return Waiter((), deadline, wake, missing=request.min_bytes)


def _let_go(plan: _Plan) -> None:
    """Before a wait, give back the memory of a request that was copied: the plan has what it needs.
    A few large ones that wait would else take all the memory that others need to send theirs."""
    call = plan.call
    if not call.owns_frame:
        call.unpin()
        return
    call.done()
    call.frame = _NO_FRAME
    plan.request.topics.clear()
    plan.request.forgotten_topics_data.clear()


def _wake(plan: _Plan, _now: Instant) -> None:
    if not plan.call.abandoned:
        answer = _again(plan)
        if answer is not None:
            plan.call.answer(answer)


def _again(plan: _Plan) -> object | None:
    """The answer, with what there is now; None if it is given later."""
    if len(plan.wants) > limits.ROWS_PER_STEP:
        return in_parts(plan.call, _answered_in_parts(plan))
    look = _Look(plan)
    look.at(plan.wants)
    look.shape(look.rows)
    return look.answer()


class _Decided:
    """How many bytes there are below the last stable offset. It may stand while the high watermark
    rises, and then rise over much at once."""

    def __init__(self, call: Call, found: Mapping[TopicPartition, _Row]) -> None:
        self._call = call
        self._wants: dict[TopicPartition, Want] = {}
        self._counted: dict[TopicPartition, int] = {}
        self.add(found)

    def add(self, found: Mapping[TopicPartition, _Row]) -> None:
        """Count these partitions too, from what was just found in them."""
        for key, (want, row) in found.items():
            self._wants[key], self._counted[key] = want, len(row.records or b"")

    def grown(self, key: TopicPartition) -> int:
        """How many more these are of a partition, since this was asked last."""
        try:
            size = self._size(self._wants[key])
        except (Rejected, OSError, CorruptError):
            return _ENOUGH  # who looks then finds out, and tells
        more, self._counted[key] = size - self._counted[key], size
        return more

    def _size(self, want: Want) -> int:
        replica = _find(self._call, want)
        limit = replica.log.last_stable_offset(replica.high_watermark)
        if want.fetch_offset >= limit:
            return 0
        found = replica.log.read(want.fetch_offset, want.size_max, limit, min_one=True)
        return 0 if found is None else len(found)


def _keys(call: Call, rows: Iterable[_Row]) -> dict[TopicPartition, _Row]:
    """The rows of partitions that are there, by their names."""
    found: dict[TopicPartition, _Row] = {}
    for row in rows:
        with contextlib.suppress(Rejected):
            found[_find(call, row[0]).key] = row
    return found


def _add_hint(
    call: Call, want: Want, row: PartitionData, endpoints: dict[int, NodeEndpoint]
) -> None:
    """Say where the partition is led now; by that version topics are asked for by id."""
    if row.error_code not in MOVED or call.version < _HINTS_VERSION:
        return
    name = call.broker.image.name_of(want.topic_id)
    found = hint(call.broker, name, want.partition) if name else None
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


# -- fetches of many partitions: other clients have their turn in between


def _fetched_in_parts(call: Call, request: FetchRequest) -> Parts:
    wants: dict[WantKey, Want] = {}
    for some in in_turns(_wants(request)):
        wants.update((want.key, want) for want in some)
        yield None
    forgotten: dict[WantKey, None] = {}
    for names in in_turns(_forgotten(request)):
        forgotten.update(dict.fromkeys(names))
        yield None
    try:
        plan = _plan(call, request, wants, forgotten)
    except Rejected as refused:
        return FetchResponse(error_code=refused.code)
    return (yield from _served_in_parts(plan))


class _EarlyWaiter:
    """Waits for partitions from the turn on in which each is looked at. If the fetch were parked
    after its last part, whatever came between two parts would not wake it."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._waiting = plan.call.broker.waiting
        self._waiter = _waiter(plan, _note_only)
        self._decided = _Decided(plan.call, {})
        if plan.committed:
            self._waiter.grown = self._decided.grown
        plan.call.park(self._waiter)

    @property
    def is_due(self) -> bool:
        """Whether there is enough by now, or something has happened to one of the partitions."""
        return self._waiter.done or self._waiter.missing <= 0

    def looked_at(self, rows: Sequence[_Row]) -> None:
        if self.is_due:
            return
        found = _keys(self._plan.call, rows)
        self._decided.add(found)
        self._waiter.missing -= sum(len(row.records or b"") for _, row in rows)
        self._waiting.wait_also(self._waiter, found)

    def go_on(self) -> None:
        """All parts are looked at: from now on the fetch is answered when the waiter wakes."""
        self._waiter.wake = partial(_wake, self._plan)

    def end(self) -> None:
        self._waiting.cancel(self._waiter)


def _note_only(_now: Instant) -> None:
    """The waiter is done, which the last part of the fetch finds out."""


def _served_in_parts(plan: _Plan) -> Parts:
    waiter = _EarlyWaiter(plan)
    try:
        look = yield from _looked_in_parts(plan, waiter.looked_at)
        if look.is_enough:
            waiter.end()
            return (yield from _shaped_in_parts(look))
    except BaseException:
        waiter.end()
        plan.call.unpin()
        raise
    if waiter.is_due:
        plan.call.unpin()
        waiter.end()
        return (yield from _answered_in_parts(plan))
    _let_go(plan)
    waiter.go_on()
    return None


def _answered_in_parts(plan: _Plan) -> Parts:
    """As `_served_in_parts`, after the time to wait is over."""
    try:
        look = yield from _looked_in_parts(plan, lambda _rows: None)
        return (yield from _shaped_in_parts(look))
    except BaseException:
        plan.call.unpin()
        raise


def _looked_in_parts(plan: _Plan, looked_at: Callable[[Sequence[_Row]], None]) -> Parting[_Look]:
    """Files of which bytes were found stay open until they are sent, or the call lets them go."""
    look = _Look(plan)
    for wants in in_turns(plan.wants):
        at = len(look.rows)
        look.at(wants)
        rows = look.rows[at:]
        for _, row in rows:
            if isinstance(row.records, FileSlice):
                plan.call.pin(row.records.file)
        if not look.is_enough:
            looked_at(rows)
        yield None
    return look


def _shaped_in_parts(look: _Look) -> Parting[FetchResponse]:
    for rows in in_turns(look.rows):
        look.shape(rows)
        yield None
    return look.answer()


ROUTE = Route(
    API, range(4, 19), fetch, "long poll, sendfile, sessions, closest replica, read_committed"
)
