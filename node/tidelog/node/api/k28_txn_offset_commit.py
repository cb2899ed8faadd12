"""TxnOffsetCommit (key 28), versions 0-5. v2 leader epochs, v3 flexible and checks the member, v4
TRANSACTION_ABORTABLE, v5 adds the partition to the transaction.

The offsets are records of the transaction in the group's partition of `__consumer_offsets`, which
has to be part of it as any other partition has; they count once its marker says so.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.api import partitions, transaction_gate
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of, offset_to_commit
from tidelog.node.api.registry import Route
from tidelog.node.api.transaction_gate import Asked, First
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.groups.requests import CommitInTransaction, OffsetToCommit, Who
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k28_txn_offset_commit import (
    API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_ABORTABLE_VERSION: Final = 4
_ADDS_VERSION: Final = 5
_LOADING_VERSION: Final = 2
_CODES_OF_OLD: Final = {
    # Producers of that time end themselves at the first, and try again at the second.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_AWAY: Final = transaction_gate.RETRIABLE - {ErrorCode.CONCURRENT_TRANSACTIONS}


def txn_offset_commit(
    call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    offsets: list[OffsetToCommit] = []
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[_row(call, topic.name, one, offsets) for one in topic.partitions],
        )
        for topic in request.topics
    ]

    def answer(code: ErrorCode) -> TxnOffsetCommitResponse:
        if call.version < _LOADING_VERSION:
            code = _CODES_OF_OLD.get(code, code)
        for topic in topics:
            for row in topic.partitions:
                row.error_code = row.error_code or code
        return TxnOffsetCommitResponse(topics=topics)

    if not offsets:
        return answer(ErrorCode.NONE)
    try:
        _Commit(call, request, tuple(offsets), answer).begin()
    except Rejected as refused:
        return answer(refused.code)
    return None


def _row(
    call: Call,
    topic: str,
    asked: TxnOffsetCommitRequestPartition,
    offsets: list[OffsetToCommit],
) -> TxnOffsetCommitResponsePartition:
    found = offset_to_commit(call, topic, asked)
    index = asked.partition_index
    if isinstance(found, ErrorCode):
        return TxnOffsetCommitResponsePartition(partition_index=index, error_code=found)
    offsets.append(found)
    return TxnOffsetCommitResponsePartition(partition_index=index)


class _Commit:
    """One request on its way: the transaction is checked, then the group is asked."""

    def __init__(
        self,
        call: Call,
        request: TxnOffsetCommitRequest,
        offsets: tuple[OffsetToCommit, ...],
        answer: Callable[[ErrorCode], TxnOffsetCommitResponse],
    ) -> None:
        self._call = call
        self._request = request
        self._offsets = offsets
        self._answer = answer
        self._batch = First(
            request.producer_id, request.producer_epoch, adds=call.version >= _ADDS_VERSION
        )

    def begin(self) -> None:
        """Rejected where it cannot be."""
        call, request = self._call, self._request
        if not request.group_id:
            raise Rejected(ErrorCode.INVALID_GROUP_ID)
        if not request.transactional_id:
            raise Rejected(ErrorCode.INVALID_REQUEST)
        if request.producer_id < 0 or request.producer_epoch < 0:
            raise Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        replica, leader = self._place()
        with partitions.storage_errors(call.broker, replica):
            asked = transaction_gate.needed(call.broker, replica, leader, self._batch)
        if asked is None:
            self._write(None)
        else:
            told = partial(self._told, asked)
            name = request.transactional_id
            transaction_gate.ask(call, name, [asked], told)

    def _place(self) -> tuple[Replica, Leader]:
        """Where the group's offsets are kept, if that is here."""
        broker = self._call.broker
        topic = broker.image.names.get(OFFSETS_TOPIC)
        if topic is None:
            raise Rejected(ErrorCode.NOT_COORDINATOR)
        partition = partition_of(self._request.group_id, len(topic.partitions))
        try:
            return partitions.led(broker, OFFSETS_TOPIC, partition)
        except Rejected as refused:
            raise Rejected(ErrorCode.NOT_COORDINATOR) from refused

    def _told(self, asked: Asked, now: Instant, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        call = self._call
        if call.abandoned:
            return  # it may have asked somebody else since
        call.now = now
        code = self._outcome(codes[asked.key])
        if code is ErrorCode.NONE:
            try:
                self._write(asked)
            except Rejected as refused:
                moved = refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                code = ErrorCode.NOT_COORDINATOR if moved else refused.code
        if code is not ErrorCode.NONE:
            call.answer(self._answer(code))

    def _outcome(self, code: ErrorCode) -> ErrorCode:
        if code in _AWAY:
            # The group's coordinator is not to be looked for anew: it is not the one that is away.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        abortable = self._call.version >= _ABORTABLE_VERSION
        return transaction_gate.outcome(code, says_abortable=abortable)

    def _write(self, asked: Asked | None) -> None:
        """The group's coordinator appends in this turn, or not at all."""
        call, request = self._call, self._request
        replica, leader = self._place()
        with partitions.storage_errors(call.broker, replica):
            transaction_gate.admit(call.broker, replica, leader, self._batch, asked)
        who = Who(request.member_id, request.group_instance_id, request.generation_id)
        ask_group(
            call,
            request.group_id,
            CommitInTransaction(
                request.group_id,
                who,
                request.producer_id,
                request.producer_epoch,
                self._offsets,
            ),
            lambda said: self._answer(code_of(said)),
        )


ROUTE = Route(API, range(6), txn_offset_commit, "pending until the transaction's marker")
