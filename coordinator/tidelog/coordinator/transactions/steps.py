"""What the rules on a transactional id have in common: a step of it, and how far epochs go."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    EndTxn,
    Reply,
    VerifyPartitions,
)
from tidelog.kernel.ids import ProducerEpoch, ProducerId
from tidelog.wire.errors import ErrorCode, Rejected

EPOCH_LAST: Final = ProducerEpoch((1 << 15) - 2)
"""The highest that a producer is given: one more is left to lock it out."""
EPOCH_MAX: Final = ProducerEpoch(EPOCH_LAST + 1)

Take = Callable[[], ProducerId]
"""A producer id that nobody has; Rejected where none is in stock."""
Known = Transaction | None


class Step(NamedTuple):
    becomes: Transaction | None
    says: Reply


def of_its_producer(known: Known, asked: AddPartitions | VerifyPartitions | EndTxn) -> Transaction:
    """The id, if it is that producer's who asks."""
    if known is None:
        raise Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_id != asked.producer_id:
        if known.state.is_prepared and known.successor[0] == asked.producer_id:
            # It was told who it is from now on; the markers of who it was take longer.
            raise Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != asked.producer_epoch:
        raise Rejected(ErrorCode.PRODUCER_FENCED)
    return known
