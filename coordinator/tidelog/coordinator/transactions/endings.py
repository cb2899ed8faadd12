"""How a transaction ends: by its producer, by another one, by time; and when that is complete.

Under version 1 of the protocol a producer goes on under the epoch that it had. Under version 2 each
end gives it the next one, and the markers carry that: what comes late of a transaction has an epoch
that is over, here and in every partition. (KIP-890)
"""

from typing import Final

from msgspec.structs import replace

from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.requests import (
    Done,
    EndTxn,
    Identity,
    MarkersWritten,
    Prepared,
    Reply,
)
from tidelog.coordinator.transactions.states import TxnState, enter
from tidelog.coordinator.transactions.steps import (
    EPOCH_LAST,
    EPOCH_MAX,
    Known,
    Step,
    Take,
    of_its_producer,
)
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerEpoch
from tidelog.node.metadata.features import BUMPING
from tidelog.wire.errors import ErrorCode, Rejected

_FIRST_EPOCH: Final = ProducerEpoch(0)


def end_txn(known: Known, asked: EndTxn, now_ms: int, take: Take) -> Step:
    """As the version of the request says: producers of both may use an id one after the other."""
    if asked.version >= BUMPING:
        return _end_and_bump(known, asked, now_ms, take)
    return _end(known, asked, now_ms)


def _outcome(asked: EndTxn) -> TxnState:
    return TxnState.PREPARE_COMMIT if asked.committed else TxnState.PREPARE_ABORT


def _check_outcome(known: Transaction, asked: EndTxn) -> None:
    """Rejected unless it has ended, or is about to, as this one wants it to."""
    if known.is_committed != asked.committed:
        raise Rejected(ErrorCode.INVALID_TXN_STATE)


def _again(known: Transaction, complete: Reply) -> Step:
    """Asked again for an end that is decided: this one waits for it as who asked first, whose
    answer a coordinator that died may have taken along. Turned away, clients come back 100 ms
    later."""
    return Step(None, Prepared(known) if known.state.is_prepared else complete)


def _end(known: Known, asked: EndTxn, now_ms: int) -> Step:
    known = of_its_producer(known, asked)
    if known.state is TxnState.EMPTY:
        raise Rejected(ErrorCode.INVALID_TXN_STATE)
    if known.state is not TxnState.ONGOING:
        _check_outcome(known, asked)
        return _again(known, Done())
    prepared = replace(_prepared(known, _outcome(asked), now_ms), client_version=0)
    return Step(prepared, Prepared(prepared))


def _prepared(known: Transaction, outcome: TxnState, now_ms: int) -> Transaction:
    return replace(known, state=enter(known.state, outcome), updated_ms=now_ms)


# -- version 2


def _end_and_bump(known: Known, asked: EndTxn, now_ms: int, take: Take) -> Step:
    """An abort is taken also where nothing was begun: after an error a producer does not know."""
    if known is not None and _repeats(known, asked):
        _check_outcome(known, asked)
        if known.producer_epoch != EPOCH_MAX:
            return _again(known, Identity(*known.successor))
        if known.state.is_prepared:
            raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
        # It was locked out when its last epoch was used up and no other id was there: now one is.
    else:
        known = of_its_producer(known, asked)
        if known.state.is_prepared:
            raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
        if asked.committed and known.state is not TxnState.ONGOING:
            raise Rejected(ErrorCode.INVALID_TXN_STATE)
    bumped = _bumped(known, _outcome(asked), now_ms, take)
    return Step(bumped, Prepared(bumped))


def _repeats(known: Transaction, asked: EndTxn) -> bool:
    """Whether the last end was of the transaction that this one wants to end.

    Who had the epoch before asked for the end, or was locked out by it. An epoch that another
    producer has begun with says so: it has no previous producer.
    """
    if known.client_version < BUMPING or known.previous_producer_id != asked.producer_id:
        return False
    if not (known.state.is_prepared or known.state.is_complete):
        return False
    if known.producer_id == asked.producer_id:
        return known.producer_epoch == asked.producer_epoch + 1
    return known.producer_epoch == _FIRST_EPOCH and asked.producer_epoch == EPOCH_LAST


def _bumped(known: Transaction, outcome: TxnState, now_ms: int, take: Take) -> Transaction:
    """Its end, under the next epoch. After the last one the producer gets another id, once the
    markers are written: they are of the old one."""
    used_up = known.producer_epoch >= EPOCH_LAST
    return replace(
        _prepared(known, outcome, now_ms),
        producer_epoch=ProducerEpoch(min(known.producer_epoch + 1, EPOCH_MAX)),
        previous_producer_id=known.producer_id,
        next_producer_id=take() if used_up else NO_PRODUCER_ID,
        started_ms=now_ms if known.state.is_idle else known.started_ms,
        client_version=BUMPING,
    )


# -- who does not end it himself


def fenced(known: Transaction, now_ms: int, version: int, take: Take) -> Transaction:
    """Its producer is locked out, and what it left open is aborted, under an epoch that is higher
    than its own in every partition that gets the marker. The cluster's version says how: what the
    producer speaks is not asked."""
    locked_out = replace(known, state=enter(known.state, TxnState.PREPARE_EPOCH_FENCE))
    if version >= BUMPING:
        return _bumped(locked_out, TxnState.PREPARE_ABORT, now_ms, take)
    return replace(
        _prepared(locked_out, TxnState.PREPARE_ABORT, now_ms),
        producer_epoch=ProducerEpoch(min(known.producer_epoch + 1, EPOCH_MAX)),
        previous_producer_id=NO_PRODUCER_ID,
        client_version=0,
    )


def markers_written(known: Known, asked: MarkersWritten, now_ms: int) -> Step:
    """Said twice where the log was loaded in between: once is enough."""
    if known != asked.prepared:
        return Step(None, Done())
    complete = TxnState.COMPLETE_COMMIT if known.is_committed else TxnState.COMPLETE_ABORT
    producer_id, producer_epoch = known.successor
    ended = replace(
        known,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        state=enter(known.state, complete),
        updated_ms=now_ms,
        partitions=frozenset(),
    )
    return Step(ended, Done())
