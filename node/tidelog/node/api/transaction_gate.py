"""What lets a batch of a transaction into a log. (KIP-890)

A partition takes records of a transaction only while the transaction coordinator knows that it is
part of it: else nobody would ever end it there, and what comes behind would stay hidden from
readers of committed records. Once a first batch is in, the log itself knows. Before, the
coordinator is asked: whether the partition takes part, or, by a producer that speaks version 2 of
transactions, to let it take part from now on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.ids import Partition, TopicPartition, by_topic
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import COORDINATORS_PER_CALL_MAX
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.log.producers import Producers
from tidelog.node.log.verifications import NO_SEQUENCE, Verification
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages.k24_add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_VERSION: Final = 5
_WAIT_MS: Final = 20_000
"""Clients wait for 30 s, and had better hear something."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Of these a producer should hear in a way that makes it send the same again."""


class First(NamedTuple):
    """A batch that may be the first of its transaction in a log."""

    producer_id: int
    producer_epoch: int
    sequence: int = NO_SEQUENCE
    adds: bool = False
    """Its partition to the transaction: its producer has not said that it will write to it."""


class Asked(NamedTuple):
    """A batch that the coordinator is asked about."""

    batch: First
    key: TopicPartition
    producers: Producers
    """Of the log as it is now: one that is cut has others."""
    verification: Verification


Told = Callable[[Instant, Mapping[TopicPartition, ErrorCode]], None]
"""Gets what the coordinator says of each partition."""


def needed(broker: Broker, replica: Replica, leader: Leader, batch: First) -> Asked | None:
    """What the coordinator is to be asked before this is taken; None where it need not be."""
    producers = replica.log.producers
    if not must_wait(broker, producers, leader, batch):
        return None
    verification = producers.verifications.begin(
        batch.producer_id, batch.producer_epoch, batch.sequence, leader.epoch
    )
    return Asked(batch, replica.key, producers, verification)


def is_gated(broker: Broker, producers: Producers, batch: First) -> bool:
    """Whether the log itself does not know that it may take it, nor refuses it anyway."""
    known = producers.get(batch.producer_id)
    if known is not None and (
        known.epoch > batch.producer_epoch
        or (known.txn_start >= 0 and known.epoch == batch.producer_epoch)
    ):
        return False
    return batch.adds or bool(broker.settings["transaction.partition.verification.enable"])


def must_wait(broker: Broker, producers: Producers, leader: Leader, batch: First) -> bool:
    """Whether neither the log itself nor the coordinator, unasked, has said what becomes of it."""
    if not is_gated(broker, producers, batch):
        return False
    return _admitted(producers, leader, batch) is None


def ask(call: Call, transactional_id: str, asked: Sequence[Asked], told: Told) -> None:
    """Ask about all of them at once; all are of one producer. `told` is called once, also where
    the client is gone by then."""
    producer_id, producer_epoch, _, adds = asked[0].batch
    topics = by_topic(dict.fromkeys(one.key for one in asked))
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    frame = joined(encode_request(API, _VERSION, 0, None, request))[4:]

    sent = 0

    def done(now: Instant, answer: bytes | ErrorCode) -> None:
        is_away = answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if is_away and now < deadline and sent < COORDINATORS_PER_CALL_MAX:
            # The connection to the coordinator ended. A question changes nothing, and what adds is
            # in an epoch that ends with its transaction: unlike what clients want it may go once
            # more, to the next one. They would wait for far longer.
            send()
            return
        codes = _codes(asked, answer)
        for one in asked:
            code = codes[one.key]
            granted = None if code in RETRIABLE else code is ErrorCode.NONE
            one.producers.verifications.told(producer_id, one.verification, granted=granted)
        told(now, codes)

    def send() -> None:
        nonlocal sent
        sent += 1
        call.broker.transactions.forward(frame, call.client.address, deadline, call.later(done))

    deadline = Instant(call.now + ms(_WAIT_MS))
    send()


def _codes(asked: Sequence[Asked], answer: bytes | ErrorCode) -> dict[TopicPartition, ErrorCode]:
    """Of each partition; what the coordinator does not speak of, it does not know."""
    of_all = answer if isinstance(answer, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    codes = {one.key: of_all for one in asked}
    if isinstance(answer, bytes):
        try:
            codes.update(_said(answer, codes))
        except (WireError, ValueError):
            return dict.fromkeys(codes, ErrorCode.UNKNOWN_SERVER_ERROR)
    return codes


def _said(answer: bytes, keys: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    _, said = decode_response(API, _VERSION, memoryview(answer))
    if said.error_code:
        return dict.fromkeys(keys, ErrorCode(said.error_code))
    return {
        (topic.name, Partition(row.partition_index)): ErrorCode(row.partition_error_code)
        for transaction in said.results_by_transaction
        for topic in transaction.topic_results
        for row in topic.results_by_partition
    }


def outcome(code: ErrorCode, *, says_abortable: bool) -> ErrorCode:
    """What a producer is told; one of an older protocol knows no TRANSACTION_ABORTABLE."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}:
        return ErrorCode.TRANSACTION_ABORTABLE if says_abortable else ErrorCode.INVALID_TXN_STATE
    return code


def admit(
    broker: Broker, replica: Replica, leader: Leader, batch: First, asked: Asked | None
) -> None:
    """Rejected where it may not be taken now. Whoever calls this appends it at once."""
    producers = replica.log.producers
    if not is_gated(broker, producers, batch):
        return
    producer_id = batch.producer_id
    if asked is not None and (
        asked.producers is not producers or asked.verification.leader_epoch != leader.epoch
    ):
        # Nothing says that the transaction has ended: its producer shall ask once more.
        raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader epoch has begun")
    verification = _word(producers, leader, batch, asked)
    if verification is None:
        raise Rejected(ErrorCode.INVALID_TXN_STATE, "no open transaction has this partition")
    # Who is not known here may begin anywhere, but not behind what it sent first; and at 0 where
    # each transaction has an epoch of its own.
    lowest = 0 if batch.adds else verification.sequence
    if producers.get(producer_id) is None and batch.sequence > lowest:
        raise Rejected(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id}: sequence {batch.sequence} before {lowest}",
        )


def _word(
    producers: Producers, leader: Leader, batch: First, asked: Asked | None
) -> Verification | None:
    """What lets it in. Who asked has the answer to that, and no other: what the coordinator has
    said since may be about the producer's next transaction."""
    if asked is None:
        return _admitted(producers, leader, batch)
    holds = producers.verifications.holds(batch.producer_id, asked.verification, leader.epoch)
    return asked.verification if holds else None


def _admitted(producers: Producers, leader: Leader, batch: First) -> Verification | None:
    """What the coordinator has said of itself."""
    verifications = producers.verifications
    return verifications.admitted(batch.producer_id, batch.producer_epoch, leader.epoch)
