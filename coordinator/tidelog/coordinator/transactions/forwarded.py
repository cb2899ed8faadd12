"""Clients' and brokers' frames about transactions: bytes into requests, replies into bytes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tidelog.coordinator.transactions.records import NO_PRODUCER_EPOCH, Transaction
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Describe,
    Described,
    EndTxn,
    Identity,
    IdRequest,
    InitProducerId,
    ListAll,
    Listed,
    Reply,
    Verified,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.states import STATES_BY_WORD
from tidelog.kernel.ids import (
    NO_PRODUCER_ID,
    Partition,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    by_topic,
)
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.groups.pattern_syntax import Alphabet
from tidelog.node.groups.patterns import Pattern, check_pattern
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.metadata.features import BUMPING
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_known, encode_response, joined
from tidelog.wire.header import AnyApi, RequestHeader
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66
from tidelog.wire.transactions import STATE_TOPIC

_END_BUMPS_FROM: Final = 5
"""The version of EndTxn with which each end takes an epoch."""
_MANY_FROM: Final = 4
"""The version of AddPartitionsToTxn from which brokers ask, for many transactions at once. They do
where a batch that is written makes its partition part of the transaction."""

Part = IdRequest | Refusal
"""One transactional id's part of a request, or why there is none to be had."""


class _Kind(Struct, frozen=True):
    """How one API becomes requests, and their replies its response. A refusal of everything is a
    reply to each part."""

    api: AnyApi
    parts: Callable[[int, Any, MetadataImage], Sequence[Part]]
    response: Callable[[int, Any, Sequence[Reply]], object]


def _checked(transactional_id: str, request: IdRequest) -> Part:
    return request if transactional_id else Refusal(ErrorCode.INVALID_REQUEST)


def _who(producer_id: int, producer_epoch: int) -> tuple[ProducerId, ProducerEpoch]:
    return ProducerId(producer_id), ProducerEpoch(producer_epoch)


def _code(reply: Reply) -> ErrorCode:
    return reply.code if isinstance(reply, Refusal) else ErrorCode.NONE


def _understood(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """The code, or the one that clients know who have not heard of PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# -- InitProducerId


def _init_parts(
    _version: int, asked: k22.InitProducerIdRequest, _image: MetadataImage
) -> list[Part]:
    name = asked.transactional_id or ""
    if (asked.producer_id == NO_PRODUCER_ID) != (asked.producer_epoch == NO_PRODUCER_EPOCH):
        return [Refusal(ErrorCode.INVALID_REQUEST)]
    who = _who(asked.producer_id, asked.producer_epoch)
    return [_checked(name, InitProducerId(name, asked.transaction_timeout_ms, *who))]


def _init_response(version: int, _asked: object, replies: Sequence[Reply]) -> object:
    (reply,) = replies
    if isinstance(reply, Identity):
        return k22.InitProducerIdResponse(
            error_code=0, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
        )
    code = _understood(_code(reply), version, fenced_from=4)
    return k22.InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


# -- AddPartitionsToTxn


def _partitions(topics: Iterable[k24.AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset((one.name, Partition(index)) for one in topics for index in one.partitions)


def _add_parts(
    version: int, asked: k24.AddPartitionsToTxnRequest, _image: MetadataImage
) -> list[Part]:
    if version >= _MANY_FROM:
        return [_add_part(one) for one in asked.transactions]
    name = asked.v3_and_below_transactional_id
    who = _who(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
    places = _partitions(asked.v3_and_below_topics)
    if any(topic in INTERNAL_TOPICS for topic, _ in places):
        return [Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    return [_checked(name, AddPartitions(name, *who, places))]


def _add_part(asked: k24.AddPartitionsToTxnTransaction) -> Part:
    name, places = asked.transactional_id, _partitions(asked.topics)
    who = _who(asked.producer_id, asked.producer_epoch)
    if any(topic == STATE_TOPIC for topic, _ in places):
        # A marker there would be no coordinator's record. A broker asks so for nobody.
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if asked.verify_only:
        return _checked(name, VerifyPartitions(name, *who, places))
    return _checked(name, AddPartitions(name, *who, places, BUMPING))


def _add_response(
    version: int, asked: k24.AddPartitionsToTxnRequest, replies: Sequence[Reply]
) -> object:
    if version < _MANY_FROM:
        (reply,) = replies
        rows = _add_rows(asked.v3_and_below_topics, reply, version)
        return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    results = [
        k24.AddPartitionsToTxnResult(
            transactional_id=one.transactional_id,
            topic_results=_add_rows(one.topics, reply, version),
        )
        for one, reply in zip(asked.transactions, replies, strict=True)
    ]
    return k24.AddPartitionsToTxnResponse(results_by_transaction=results)


def _add_rows(
    topics: Sequence[k24.AddPartitionsToTxnTopic], reply: Reply, version: int
) -> list[k24.AddPartitionsToTxnTopicResult]:
    code = _understood(_code(reply), version, fenced_from=2)
    codes = dict(reply.codes) if isinstance(reply, Verified) else {}
    return [
        k24.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                k24.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes.get((topic.name, Partition(index)), code),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# -- AddOffsetsToTxn


def _offsets_parts(
    _version: int, asked: k25.AddOffsetsToTxnRequest, image: MetadataImage
) -> list[Part]:
    topic = image.names.get(OFFSETS_TOPIC)
    if topic is None:
        return [Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    index = Partition(partition_of(asked.group_id, len(topic.partitions)))
    name = asked.transactional_id
    where = frozenset({(OFFSETS_TOPIC, index)})
    who = _who(asked.producer_id, asked.producer_epoch)
    return [_checked(name, AddPartitions(name, *who, where))]


def _offsets_response(version: int, _asked: object, replies: Sequence[Reply]) -> object:
    (reply,) = replies
    return k25.AddOffsetsToTxnResponse(error_code=_understood(_code(reply), version, fenced_from=2))


# -- EndTxn


def _end_parts(version: int, asked: k26.EndTxnRequest, _image: MetadataImage) -> list[Part]:
    name = asked.transactional_id
    who = _who(asked.producer_id, asked.producer_epoch)
    spoken = BUMPING if version >= _END_BUMPS_FROM else 0
    return [_checked(name, EndTxn(name, *who, asked.committed, spoken))]


def _end_response(version: int, _asked: object, replies: Sequence[Reply]) -> object:
    (reply,) = replies
    if isinstance(reply, Identity):
        return k26.EndTxnResponse(
            error_code=0, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
        )
    return k26.EndTxnResponse(error_code=_understood(_code(reply), version, fenced_from=2))


# -- DescribeTransactions


def _describe_parts(
    _version: int, asked: k65.DescribeTransactionsRequest, _image: MetadataImage
) -> list[Part]:
    return [_checked(name, Describe(name)) for name in asked.transactional_ids]


def _describe_response(
    _version: int, asked: k65.DescribeTransactionsRequest, replies: Sequence[Reply]
) -> object:
    pairs = zip(asked.transactional_ids, replies, strict=True)
    return k65.DescribeTransactionsResponse(
        transaction_states=[_described(name, reply) for name, reply in pairs]
    )


def _described(name: str, reply: Reply) -> k65.TransactionState:
    if not isinstance(reply, Described):
        return k65.TransactionState(
            transactional_id=name,
            error_code=_code(reply),
            transaction_state="",
            transaction_timeout_ms=-1,
            transaction_start_time_ms=-1,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            topics=[],
        )
    known = reply.transaction
    topics = by_topic(sorted(known.partitions))
    return k65.TransactionState(
        transactional_id=name,
        error_code=0,
        transaction_state=known.state.word,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[k65.TopicData(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )


# -- ListTransactions


def _list_all(asked: k66.ListTransactionsRequest) -> ListAll:
    states = (STATES_BY_WORD[word] for word in asked.state_filters if word in STATES_BY_WORD)
    longer_than = asked.duration_filter
    return ListAll(
        states=frozenset(states) if asked.state_filters else None,
        producer_ids=frozenset(asked.producer_id_filters) or None,
        open_longer_than_ms=longer_than if longer_than >= 0 else None,
    )


def _list_response(
    _version: int, asked: k66.ListTransactionsRequest, replies: Sequence[Reply]
) -> k66.ListTransactionsResponse:
    rows: list[tuple[str, Transaction]] = []
    for reply in replies:
        if isinstance(reply, Refusal):
            return k66.ListTransactionsResponse(error_code=reply.code)
        assert isinstance(reply, Listed), reply
        rows += reply.rows
    pattern = asked.transactional_id_pattern
    if pattern:
        matcher = Pattern(pattern, Alphabet.of(name for name, _ in rows))
        rows = [(name, known) for name, known in rows if matcher.matches(name)]
    return k66.ListTransactionsResponse(
        unknown_state_filters=[one for one in asked.state_filters if one not in STATES_BY_WORD],
        transaction_states=[
            k66.TransactionState(
                transactional_id=name,
                producer_id=known.producer_id,
                transaction_state=known.state.word,
            )
            for name, known in rows
        ],
    )


_KINDS: Final[Mapping[int, _Kind]] = {
    kind.api.key: kind
    for kind in (
        _Kind(k22.API, _init_parts, _init_response),
        _Kind(k24.API, _add_parts, _add_response),
        _Kind(k25.API, _offsets_parts, _offsets_response),
        _Kind(k26.API, _end_parts, _end_response),
        _Kind(k65.API, _describe_parts, _describe_response),
    )
}
_APIS: Final[Mapping[int, AnyApi]] = {
    **{key: kind.api for key, kind in _KINDS.items()},
    k66.API.key: k66.API,  # asks of every id
}


class Forwarded(Struct, frozen=True):
    """One frame read; it knows how to answer itself."""

    header: RequestHeader
    message: Any

    @classmethod
    def read(cls, frame: bytes) -> "Forwarded":
        """WireError where the frame is none of ours."""
        return cls(*decode_known(frame, _APIS))

    @property
    def is_of_broker(self) -> bool:
        """Whether a broker asks for itself, about what it was asked to append."""
        return self.header.api_key == k24.API.key and self.header.version >= _MANY_FROM

    def asks_all(self) -> ListAll | None:
        """What is asked of every id, if that is what is asked; Rejected where its expression is
        none."""
        asked = self.message
        if not isinstance(asked, k66.ListTransactionsRequest):
            return None
        if asked.transactional_id_pattern:
            check_pattern(asked.transactional_id_pattern)
        return _list_all(asked)

    def parts(self, image: MetadataImage) -> Sequence[Part]:
        """What is asked of single ids."""
        return _KINDS[self.header.api_key].parts(self.header.version, self.message, image)

    def answer(self, replies: Sequence[Reply]) -> bytes:
        """The answer's frame without its size, as the client gets it; one of REQUEST_FAULTS if
        it cannot be encoded. One reply for each part."""
        key, version = self.header.api_key, self.header.version
        kind = _KINDS.get(key)
        response = kind.response if kind is not None else _list_response
        pieces = encode_response(
            _APIS[key],
            version,
            self.header.correlation_id,
            response(version, self.message, replies),
        )
        return joined(pieces)[4:]
