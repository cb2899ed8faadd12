"""What is asked of the coordinator of one partition of `__transaction_state`, and what it says."""

from msgspec import Struct

from tidelog.coordinator.transactions.records import NO_PRODUCER_EPOCH, Transaction
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode


class InitProducerId(Struct, frozen=True):
    """A producer begins with the id. One that knows who it was says so, and asks for the next
    epoch; one that does not locks out whoever had the id before."""

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH

    @property
    def is_known(self) -> bool:
        """Whether it says who it was."""
        return self.producer_id != NO_PRODUCER_ID


class AddPartitions(Struct, frozen=True):
    """These take part in the producer's transaction, which begins with the first."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    version: int = 0
    """Of transactions, as the producer speaks it; the log has 0 for all before 2."""


class VerifyPartitions(Struct, frozen=True):
    """Do these take part? Asked by who is about to append to them."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class EndTxn(Struct, frozen=True):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    version: int = 0
    """As above."""


class MarkersWritten(Struct, frozen=True):
    """Every marker that this prepared transaction owed is committed."""

    transactional_id: str
    prepared: Transaction


class Describe(Struct, frozen=True):
    transactional_id: str


class ListAll(Struct, frozen=True):
    """Every id, but for those that a filter leaves out."""

    states: frozenset[TxnState] | None = None
    producer_ids: frozenset[int] | None = None
    open_longer_than_ms: int | None = None


IdRequest = InitProducerId | AddPartitions | VerifyPartitions | EndTxn | MarkersWritten | Describe
"""Of one transactional id."""
Request = IdRequest | ListAll


class Done(Struct, frozen=True):
    """So it is, and it cannot be taken back."""


class Identity(Struct, frozen=True):
    """Who the producer is from now on."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Verified(Struct, frozen=True):
    """What to tell whoever wants to append, of each partition."""

    codes: tuple[tuple[TopicPartition, ErrorCode], ...]


class Prepared(Struct, frozen=True):
    """The outcome that was asked for is certain; markers are owed."""

    transaction: Transaction


class Described(Struct, frozen=True):
    transaction: Transaction


class Listed(Struct, frozen=True):
    rows: tuple[tuple[str, Transaction], ...]


Reply = Done | Identity | Verified | Prepared | Described | Listed | Refusal
