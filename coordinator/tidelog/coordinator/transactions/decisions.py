"""What becomes of one transactional id by what is asked: Kafka's rules, one function a request.

Each takes the id as it stands, None where nobody has it, and gives it as it shall stand, None where
nothing is to be written, with what to say once that is committed. Rejected says no.
"""

from msgspec.structs import replace

from tidelog.coordinator.transactions import endings
from tidelog.coordinator.transactions.records import (
    NEVER,
    NO_PRODUCER_EPOCH,
    Transaction,
)
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Done,
    Identity,
    InitProducerId,
    Verified,
    VerifyPartitions,
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
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected

# -- who the producer is


def init_producer_id(
    known: Known, asked: InitProducerId, now_ms: int, version: int, take: Take
) -> Step:
    """`version` is the cluster's."""
    if known is None:
        begun = Transaction(
            producer_id=take(),
            producer_epoch=ProducerEpoch(0),
            timeout_ms=asked.timeout_ms,
            state=TxnState.EMPTY,
            updated_ms=now_ms,
        )
        return _identified(begun)
    if asked.is_known and not _is_possible(known, asked):
        raise Rejected(ErrorCode.PRODUCER_FENCED)
    if known.state.is_prepared:
        raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is TxnState.ONGOING:
        _check_may_abort(known, asked)
        aborted = endings.fenced(known, now_ms, version, take)
        return Step(aborted, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
    return _next_epoch(known, asked, now_ms, take)


def _is_possible(known: Transaction, asked: InitProducerId) -> bool:
    """Whether this producer can be the one that has the id, or is about to, or the one that had it
    before its epochs were used up."""
    return asked.producer_id in {known.producer_id, known.next_producer_id} or (
        asked.producer_id == known.previous_producer_id and asked.producer_epoch >= EPOCH_LAST
    )


def _is_current(known: Transaction, asked: InitProducerId) -> bool:
    return (asked.producer_id, asked.producer_epoch) == (known.producer_id, known.producer_epoch)


def _check_may_abort(known: Transaction, asked: InitProducerId) -> None:
    """The epoch that an abort for another takes nobody is told by this request: whoever asks comes
    again, and gets the next.

    A producer that says who it was, and is not the one whose transaction is open, is of the past:
    Kafka has it lock out the present one.
    """
    if asked.is_known and not _is_current(known, asked):
        raise Rejected(ErrorCode.PRODUCER_FENCED)


def _next_epoch(known: Transaction, asked: InitProducerId, now_ms: int, take: Take) -> Step:
    if asked.is_known and not _is_current(known, asked):
        if not _repeats(known, asked):
            raise Rejected(ErrorCode.PRODUCER_FENCED)
        if known.producer_epoch != EPOCH_MAX:
            return _identified(_emptied(known, asked, now_ms))
    previous = known.producer_id if asked.is_known else NO_PRODUCER_ID
    used_up = known.producer_epoch >= EPOCH_LAST
    bumped = replace(
        known,
        producer_id=take() if used_up else known.producer_id,
        producer_epoch=ProducerEpoch(0 if used_up else known.producer_epoch + 1),
        previous_producer_id=previous,
    )
    return _identified(_emptied(bumped, asked, now_ms))


def _repeats(known: Transaction, asked: InitProducerId) -> bool:
    """Whether this producer was given the present epoch, and did not hear it.

    The log holds who asked for an epoch and said who it was; which epoch that one had follows.
    """
    if asked.producer_id != known.previous_producer_id:
        return False
    if known.previous_producer_id == known.producer_id:
        return asked.producer_epoch == known.producer_epoch - 1
    return known.producer_epoch == 0 and asked.producer_epoch >= EPOCH_LAST


def _emptied(known: Transaction, asked: InitProducerId, now_ms: int) -> Transaction:
    return replace(
        known,
        state=enter(known.state, TxnState.EMPTY),
        timeout_ms=asked.timeout_ms,
        updated_ms=now_ms,
        started_ms=NEVER,
        partitions=frozenset(),
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _identified(becomes: Transaction) -> Step:
    return Step(becomes, Identity(becomes.producer_id, becomes.producer_epoch))


# -- what takes part


def add_partitions(known: Known, asked: AddPartitions, now_ms: int) -> Step:
    known = of_its_producer(known, asked)
    if known.state.is_prepared:
        raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_new = known.state is not TxnState.ONGOING
    if not asked.partitions or (not is_new and asked.partitions <= known.partitions):
        return Step(None, Done())
    grown = replace(
        known,
        state=enter(known.state, TxnState.ONGOING),
        updated_ms=now_ms,
        started_ms=now_ms if is_new else known.started_ms,
        partitions=known.partitions | asked.partitions,
        client_version=asked.version,
    )
    return Step(grown, Done())


def verify_partitions(known: Known, asked: VerifyPartitions) -> Step:
    known = of_its_producer(known, asked)
    if known.state.is_prepared:
        raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    codes = tuple(
        (one, ErrorCode.NONE if one in known.partitions else ErrorCode.TRANSACTION_ABORTABLE)
        for one in sorted(asked.partitions)
    )
    return Step(None, Verified(codes))
