"""A transaction's own requests: partitions and groups join it, the end is last.

Version 1 of transactions every cluster takes: who joins is said before it is written to. Where the
cluster has version 2 the brokers say so by themselves, and each end gives the producer an epoch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.clients.admin.coordinators import KeyType, at_coordinator
from tidelog.clients.asking import Ask, Features, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.producer.sender import Identity
from tidelog.kernel.ids import TopicPartition, by_topic
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.header import AnyApi
from tidelog.wire.messages.k24_add_partitions_to_txn import API as ADD_PARTITIONS_TO_TXN
from tidelog.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.k25_add_offsets_to_txn import API as ADD_OFFSETS_TO_TXN
from tidelog.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.k26_end_txn import API as END_TXN
from tidelog.wire.messages.k26_end_txn import EndTxnRequest
from tidelog.wire.messages.k28_txn_offset_commit import API as TXN_OFFSET_COMMIT
from tidelog.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

ADD_PARTITIONS_VERSION_MAX = 3
"""Later ones are for brokers only."""
END_TXN_VERSION_OF_EPOCHS = 5
"""Changes the epoch at each end."""
TXN_OFFSET_COMMIT_VERSION_OF_ADDING = 5
"""Makes the group part of the transaction by itself."""
_FEATURE = "transaction.version"
_EACH_END_TAKES_AN_EPOCH = 2


def ends_take_epochs(features: Features) -> bool:
    """Whether the cluster has version 2."""
    return features.epoch >= 0 and features.levels.get(_FEATURE, 0) >= _EACH_END_TAKES_AN_EPOCH


def spoken(api: AnyApi, request: object, version: int, *, bumps: bool) -> Ask:
    """A request that means version 2 from that version of its API on, and version 1 below."""
    if bumps:
        return Ask(api, request, version_min=version)
    return Ask(api, request, version_max=version - 1)


def add_partitions(
    view: ClusterView,
    transactional_id: str,
    identity: Identity,
    partitions: Iterable[TopicPartition],
) -> Plan[None]:
    """Make partitions part of the open transaction; the first one opens it."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in by_topic(partitions).items()
        ],
    )
    ask = Ask(ADD_PARTITIONS_TO_TXN, request, version_max=ADD_PARTITIONS_VERSION_MAX)
    yield from _at_coordinator(view, transactional_id, ask, _code_of_partitions)


def end_transaction(
    view: ClusterView,
    transactional_id: str,
    identity: Identity,
    *,
    committed: bool,
    bumps: bool = False,
) -> Plan[Identity]:
    """Commit or abort, and say who the producer is then. Asking again is safe: the coordinator
    knows that it is the same end."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
    )
    ask = spoken(END_TXN, request, END_TXN_VERSION_OF_EPOCHS, bumps=bumps)
    message = yield from _at_coordinator(view, transactional_id, ask, _code)
    return Identity(message.producer_id, message.producer_epoch) if bumps else identity


@dataclass(frozen=True, slots=True)
class Membership:
    """Whose offsets are committed: of a group, and as which of its members, where there are any."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    metadata: str = ""
    """What is kept beside each offset, for whoever looks at it."""


def add_offsets(
    view: ClusterView, transactional_id: str, identity: Identity, group: str
) -> Plan[None]:
    """Make a group's offsets part of the open transaction; this may open it as well."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )
    ask = Ask(ADD_OFFSETS_TO_TXN, request)
    yield from _at_coordinator(view, transactional_id, ask, _code)


def commit_offsets(
    view: ClusterView,
    transactional_id: str,
    identity: Identity,
    member: Membership,
    offsets: Mapping[TopicPartition, int],
    *,
    bumps: bool = False,
) -> Plan[None]:
    """Tell the group's coordinator: pending until the transaction is committed."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=member.metadata
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=member.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )
    ask = spoken(TXN_OFFSET_COMMIT, request, TXN_OFFSET_COMMIT_VERSION_OF_ADDING, bumps=bumps)
    _, message = yield from at_coordinator(view, member.group, KeyType.GROUP, ask, _code_of_offsets)
    _check(_code_of_offsets(message), member.group)


def _at_coordinator(
    view: ClusterView, transactional_id: str, ask: Ask, code_of: Callable[[Any], int]
) -> Plan[Any]:
    _, message = yield from at_coordinator(
        view, transactional_id, KeyType.TRANSACTION, ask, code_of
    )
    _check(code_of(message), transactional_id)
    return message


def _check(code: int, name: str) -> None:
    if code != ErrorCode.NONE:
        raise Rejected(known_code(code), name)


def _code(message: Any) -> int:  # noqa: ANN401 -- a response with a code at its top
    code: int = message.error_code
    return code


def _code_of_partitions(message: AddPartitionsToTxnResponse) -> int:
    return _worst(
        one.partition_error_code
        for topic in message.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    )


def _code_of_offsets(message: TxnOffsetCommitResponse) -> int:
    return _worst(one.error_code for topic in message.topics for one in topic.partitions)


def _worst(codes: Iterable[int]) -> int:
    """One for which asking again is of no use, if any is; and that nothing was tried says least."""
    return min(codes, key=_badness, default=ErrorCode.NONE)


def _badness(code: int) -> int:
    match known_code(code):
        case ErrorCode.NONE:
            return 3
        case ErrorCode.OPERATION_NOT_ATTEMPTED:
            return 2
        case known:
            return 1 if known in RETRIABLE else 0
