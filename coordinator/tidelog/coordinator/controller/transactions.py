"""Lives of the transaction coordinator: each is given a higher epoch than all before it.

The epoch is what its writes are judged by, wherever they come late: see `wire/transactions.py`.
"""

from tidelog.coordinator.controller.requests import RegisterTransactions
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Epoch, Incarnation
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import TransactionsActivated


def activate(
    image: MetadataImage, request: RegisterTransactions
) -> tuple[tuple[TransactionsActivated, ...], Epoch]:
    """The epoch of this life, which it keeps however often it connects; Rejected where a later life
    has begun."""
    if request.cluster_id != image.cluster_id:
        raise Rejected(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the transaction coordinator is of cluster {request.cluster_id}, "
            f"this is cluster {image.cluster_id}",
        )
    if request.incarnation < image.transactions_incarnation:
        raise Rejected(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            "the transaction coordinator has been started again since",
        )
    if request.incarnation == image.transactions_incarnation:
        return (), image.transactions_epoch
    epoch = Epoch(image.transactions_epoch + 1)
    return (TransactionsActivated(epoch, request.incarnation),), epoch


def holds(image: MetadataImage, who: BrokerId, incarnation: Incarnation) -> bool:
    """Whether it is the transaction coordinator, in its latest life."""
    return who == TRANSACTIONS_ID and incarnation == image.transactions_incarnation
