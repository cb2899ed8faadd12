"""The transactional ids that one partition of `__transaction_state` keeps: decides, replays.

A request is decided on at once, in the light of all that was decided before. What it changes is a
record, and only the replay of records changes what is known of an id: whoever loads the log knows
what the coordinator knew that wrote it.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Final, assert_never

from msgspec import Struct

from tidelog.coordinator.transactions import decisions, endings
from tidelog.coordinator.transactions.events import TransactionTimedOut
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.records import Transaction, TxnRecord, size_bytes
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Describe,
    Described,
    EndTxn,
    IdRequest,
    InitProducerId,
    ListAll,
    Listed,
    MarkersWritten,
    Reply,
    Request,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.states import TxnState, enter
from tidelog.coordinator.transactions.steps import Step
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerId, RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_PARTITIONS_MAX,
    TRANSACTIONS_EXPIRED_PER_DECISION_MAX,
)
from tidelog.kernel.shard import Decision
from tidelog.wire.errors import ErrorCode, Rejected

TxnDecision = Decision[TxnRecord, Reply]


class TransactionSettings(Struct, frozen=True):
    """As Kafka's settings of these names say."""

    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 604_800_000
    cleanup_interval_ms: int = 3_600_000


class TxnShard:
    """Invariant: what `replay` has made is what a coordinator has that loads the same records."""

    def __init__(
        self,
        settings: TransactionSettings,
        wall_ms: Callable[[Instant], int],
        producer_ids: ProducerIds,
        tell: Callable[[TransactionTimedOut], None],
        version: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._wall_ms = wall_ms
        self._producer_ids = producer_ids
        self._tell = tell
        self._version = version
        """Of transactions, as the cluster has it now."""
        self._ids: dict[str, Transaction] = {}
        """In the order of their latest records."""
        self._open = 0
        self._now: Instant | None = None
        """Of the latest decision; None while the log is loaded."""
        self._due: list[tuple[Instant, str]] = []
        self._limits: dict[str, Instant] = {}
        """When the time of each open transaction is up; entries of `_due` that say otherwise are
        stale."""
        self._cleanup: Instant | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def open_count(self) -> int:
        """Transactions that have not come to their end."""
        return self._open

    # -- as every shard

    def decide(self, now: Instant, asked: RequestId, request: Request) -> TxnDecision:
        self._now = now
        if isinstance(request, ListAll):
            return Decision(replies=((asked, self._listed(now, request)),))
        step = self._step(now, request)
        if step.becomes is None:
            return Decision(replies=((asked, step.says),))
        record = TxnRecord(request.transactional_id, step.becomes)
        return Decision((record,), ((asked, step.says),))

    def expire(self, now: Instant) -> TxnDecision:
        self._now = now
        records = (*_fitting(self._timed_out(now)), *_fitting(self._forgotten(now)))
        return Decision(records)

    def replay(self, record: TxnRecord) -> None:
        name, value = record.transactional_id, record.value
        before = self._ids.pop(name, None)
        self._open -= before is not None and before.state.is_open
        if value is None:
            return
        self._ids[name] = value
        self._open += value.state.is_open
        if value.state is not TxnState.ONGOING:
            self._limits.pop(name, None)
        elif self._now is not None and name not in self._limits:
            self._limit(self._now, name, value.timeout_ms)

    def loaded(self, now: Instant) -> None:
        """All records are replayed."""
        assert not self._limits, "loaded twice"
        self._now = now
        now_ms = self._wall_ms(now)
        for name, known in self._ids.items():
            if known.state is TxnState.ONGOING:
                # The clock may have been set since: nobody waits for longer than a whole time-out.
                left_ms = known.started_ms + known.timeout_ms - now_ms
                self._limit(now, name, max(0, min(left_ms, known.timeout_ms)))
        self._cleanup = Instant(now + ms(self._settings.cleanup_interval_ms))

    def deadline(self) -> Instant | None:
        while self._due and self._limits.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        if not self._due or self._cleanup is None:
            return self._cleanup
        return min(self._due[0][0], self._cleanup)

    def prepared(self) -> Iterator[tuple[str, Transaction]]:
        """The ids whose markers are owed."""
        return ((name, known) for name, known in self._ids.items() if known.state.is_prepared)

    # -- requests

    def _step(self, now: Instant, request: IdRequest) -> Step:
        known, now_ms = self._ids.get(request.transactional_id), self._wall_ms(now)
        match request:
            case InitProducerId():
                self._check(request)
                return decisions.init_producer_id(
                    known, request, now_ms, self._version(), self._take
                )
            case AddPartitions():
                return _sized(request, decisions.add_partitions(known, request, now_ms))
            case VerifyPartitions():
                return decisions.verify_partitions(known, request)
            case EndTxn():
                return endings.end_txn(known, request, now_ms, self._take)
            case MarkersWritten():
                return endings.markers_written(known, request, now_ms)
            case Describe():
                if known is None:
                    raise Rejected(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
                return Step(None, Described(known))
            case _:
                assert_never(request)

    def _check(self, request: InitProducerId) -> None:
        if not 0 < request.timeout_ms <= self._settings.timeout_ms_max:
            raise Rejected(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    def _take(self) -> ProducerId:
        taken = self._producer_ids.take()
        if taken is None:
            raise Rejected(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return taken

    def _take_if_any(self) -> ProducerId:
        """Who is locked out at its last epoch does without, until it comes again."""
        taken = self._producer_ids.take()
        return NO_PRODUCER_ID if taken is None else taken

    def _listed(self, now: Instant, request: ListAll) -> Listed:
        now_ms = self._wall_ms(now)
        rows = ((name, one) for name, one in self._ids.items() if _wanted(one, request, now_ms))
        return Listed(tuple(rows))

    # -- time

    def _limit(self, now: Instant, name: str, left_ms: int) -> None:
        self._limits[name] = at = Instant(now + ms(left_ms))
        heapq.heappush(self._due, (at, name))
        if len(self._due) > 2 * len(self._limits) + _STALE_MAX:
            self._due = sorted((at, name) for name, at in self._limits.items())

    def _timed_out(self, now: Instant) -> Iterator[TxnRecord]:
        """Abort whose time is up. Its producer is locked out: it does not know of the abort, and
        would write on."""
        now_ms = self._wall_ms(now)
        while self._due and self._due[0][0] <= now:
            at, name = heapq.heappop(self._due)
            if self._limits.get(name) != at:
                continue
            known = self._ids[name]
            open_ms = max(now_ms - known.started_ms, 0)
            self._tell(TransactionTimedOut(name, known.producer_id, open_ms))
            aborted = endings.fenced(known, now_ms, self._version(), self._take_if_any)
            yield TxnRecord(name, aborted)

    def _forgotten(self, now: Instant) -> Iterator[TxnRecord]:
        """Take back the ids that nobody used for long; there is more as long as time is due."""
        if self._cleanup is None or self._cleanup > now:
            return
        oldest_ms = self._wall_ms(now) - self._settings.id_expiration_ms
        for name, known in self._ids.items():
            if known.updated_ms > oldest_ms:
                break  # as all that follow
            if known.state.is_idle:
                enter(known.state, TxnState.DEAD)
                yield TxnRecord(name, None)
        self._cleanup = Instant(now + ms(self._settings.cleanup_interval_ms))


_PARTITIONS_SURELY_FIT: Final = 1_000
"""Whoever has no more need not be measured."""
_STALE_MAX: Final = 1_000


def _fitting(records: Iterator[TxnRecord]) -> Iterator[TxnRecord]:
    """As many as one batch takes; the rest waits for the next turn of the loop."""
    size = 0
    for count, record in enumerate(records, start=1):
        yield record
        size += size_bytes(record)
        if count >= TRANSACTIONS_EXPIRED_PER_DECISION_MAX or size > TRANSACTION_BYTES_MAX:
            return


def _sized(request: AddPartitions, step: Step) -> Step:
    """A record that no batch can hold must not be decided: nothing more could be written. Nor may
    the coordinator's other clients have to wait for a transaction of very many partitions."""
    count = 0 if step.becomes is None else len(step.becomes.partitions)
    if count > TRANSACTION_PARTITIONS_MAX:
        raise Rejected(ErrorCode.POLICY_VIOLATION, f"a transaction of {count} partitions")
    if step.becomes is not None and count > _PARTITIONS_SURELY_FIT:
        size = size_bytes(TxnRecord(request.transactional_id, step.becomes))
        if size > TRANSACTION_BYTES_MAX:
            raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, f"a transaction of {size} bytes")
    return step


def _wanted(known: Transaction, request: ListAll, now_ms: int) -> bool:
    if request.states is not None and known.state not in request.states:
        return False
    if request.producer_ids is not None and known.producer_id not in request.producer_ids:
        return False
    longer_than = request.open_longer_than_ms
    return longer_than is None or (known.state.is_open and now_ms - known.started_ms > longer_than)
