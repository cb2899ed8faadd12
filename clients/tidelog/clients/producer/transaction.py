"""A transaction's own requests: partitions join before the first produce, the end comes last.

These are the requests of transaction version 1, which every cluster takes.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.clients.admin.coordinators import KeyType, find_coordinator
from tidelog.clients.asking import Answered, Ask, Call, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, known_code, pause_after
from tidelog.clients.producer.sender import Identity
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import TopicPartition
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k24_add_partitions_to_txn import API as ADD_PARTITIONS_TO_TXN
from tidelog.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.k26_end_txn import API as END_TXN
from tidelog.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

ADD_PARTITIONS_VERSION_MAX = 3
"""Later ones are for brokers only."""
END_TXN_VERSION_MAX = 4
"""The next one changes the epoch at each end: transaction version 2."""


def add_partitions(
    view: ClusterView,
    transactional_id: str,
    identity: Identity,
    partitions: Iterable[TopicPartition],
) -> Plan[None]:
    """Make partitions part of the open transaction; the first one opens it."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
    ask = Ask(ADD_PARTITIONS_TO_TXN, request, version_max=ADD_PARTITIONS_VERSION_MAX)
    yield from _at_coordinator(view, transactional_id, ask, _codes_of_partitions)


def end_transaction(
    view: ClusterView, transactional_id: str, identity: Identity, *, committed: bool
) -> Plan[None]:
    """Commit or abort. Asking again is safe: the coordinator knows that it is the same end."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
    )
    ask = Ask(END_TXN, request, version_max=END_TXN_VERSION_MAX)
    yield from _at_coordinator(view, transactional_id, ask, _code_of_end)


def _at_coordinator(
    view: ClusterView, transactional_id: str, ask: Ask, codes: Callable[[Any], Iterable[int]]
) -> Plan[None]:
    failures = 0
    while True:
        coordinator = yield from find_coordinator(view, transactional_id, KeyType.TRANSACTION)
        (outcome,) = yield [Call(coordinator, ask)]
        failures += 1
        if not isinstance(outcome, Answered):
            yield pause_after(outcome, failures)
            continue
        errors = {known_code(one) for one in codes(outcome.message)} - {ErrorCode.NONE}
        if not errors:
            return
        final = sorted(errors - RETRIABLE - {ErrorCode.OPERATION_NOT_ATTEMPTED})
        if final:
            raise Rejected(final[0], transactional_id)
        yield Pause(BACKOFF.wait(failures), f"transaction {transactional_id!r} is not ready")


def _codes_of_partitions(message: AddPartitionsToTxnResponse) -> Iterable[int]:
    return [
        one.partition_error_code
        for topic in message.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]


def _code_of_end(message: EndTxnResponse) -> Iterable[int]:
    return [message.error_code]
