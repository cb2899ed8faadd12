"""TxnOffsetCommit (key 28), versions 0-5. v2 leader epochs, v3 flexible and checks the member, v4
TRANSACTION_ABORTABLE, v5 adds the partition to the transaction.

The offsets are records of the transaction in the group's partition of `__consumer_offsets`, which
has to be part of it as any other partition has; they count once its marker says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.api import partitions, transaction_gate
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import CommitsInParts, ask_group, code_of, offset_to_commit
from tidelog.node.api.parts import Parts, in_parts, in_turns
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
_NOWHERE: Final = -1
_CODES_OF_OLD: Final = {
    # Producers of that time end themselves at the first, and try again at the second.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_AWAY: Final = transaction_gate.RETRIABLE - {ErrorCode.CONCURRENT_TRANSACTIONS}


def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> object | None:
    asked = _Asked(call)
    if sum(len(topic.partitions) for topic in request.topics) > limits.ROWS_PER_STEP:
        return in_parts(call, _begun_in_parts(call, request, asked))
    for topic, row in _rows(request, asked):
        asked.add(topic, row)
    return _begun(call, request, asked)


def _begun_in_parts(call: Call, request: TxnOffsetCommitRequest, asked: "_Asked") -> Parts:
    for some in in_turns(_rows(request, asked)):
        for topic, row in some:
            asked.add(topic, row)
        yield None
    return _begun(call, request, asked)


def _rows(
    request: TxnOffsetCommitRequest, asked: "_Asked"
) -> Iterator[tuple[TxnOffsetCommitResponseTopic, TxnOffsetCommitRequestPartition]]:
    """Each partition that is named, and the topic of the answer that its row belongs to."""
    for named in request.topics:
        topic = TxnOffsetCommitResponseTopic(name=named.name, partitions=[])
        asked.topics.append(topic)
        for one in named.partitions:
            yield topic, one


def _begun(call: Call, request: TxnOffsetCommitRequest, asked: "_Asked") -> object | None:
    if not asked.offsets:
        return asked.answer(ErrorCode.NONE)
    try:
        _Commit(call, request, asked).begin()
    except Rejected as refused:
        return asked.answer(refused.code)
    return None


class _Asked:
    """What may be committed of a request, and the rows of its answer.

    Invariant: `undecided` has the row of each of `offsets`, in their order.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.offsets: list[OffsetToCommit] = []
        self.undecided: list[TxnOffsetCommitResponsePartition] = []
        self.topics: list[TxnOffsetCommitResponseTopic] = []

    def add(
        self, topic: TxnOffsetCommitResponseTopic, asked: TxnOffsetCommitRequestPartition
    ) -> None:
        row = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index)
        topic.partitions.append(row)
        found = offset_to_commit(self._call, topic.name, asked)
        if isinstance(found, ErrorCode):
            row.error_code = found
        else:
            self.offsets.append(found)
            self.undecided.append(row)

    def told(self, code: ErrorCode) -> ErrorCode:
        """The code as clients of this version know it."""
        return code if self._call.version >= _LOADING_VERSION else _CODES_OF_OLD.get(code, code)

    def answer(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        """All that was not decided gets this code."""
        code = self.told(code)
        for row in self.undecided:
            row.error_code = code
        return TxnOffsetCommitResponse(topics=self.topics)


class _Commit:
    """One request on its way: the transaction is checked, then the group is asked."""

    def __init__(
        self,
        call: Call,
        request: TxnOffsetCommitRequest,
        asked: _Asked,
    ) -> None:
        self._call = call
        self._request = request
        self._asked = asked
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
            call.answer(self._asked.answer(code))

    def _outcome(self, code: ErrorCode) -> ErrorCode:
        if code in _AWAY:
            # The group's coordinator is not to be looked for anew: it is not the one that is away.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        abortable = self._call.version >= _ABORTABLE_VERSION
        return transaction_gate.outcome(code, says_abortable=abortable)

    def _write(self, asked: Asked | None) -> None:
        """The group's coordinator appends in this turn, or not at all. Where the offsets are more
        than fit into a turn, that is so for the first part of them."""
        call = self._call
        replica, leader = self._place()
        with partitions.storage_errors(call.broker, replica):
            transaction_gate.admit(call.broker, replica, leader, self._batch, asked)
        of_all = self._asked
        if len(of_all.offsets) > limits.ROWS_PER_STEP:
            in_parts(call, self._written_in_parts(replica, leader))
            return
        ask_group(
            call,
            self._request.group_id,
            self._part(of_all.offsets),
            lambda said: of_all.answer(code_of(said)),
        )

    def _part(self, offsets: Sequence[OffsetToCommit]) -> CommitInTransaction:
        request = self._request
        return CommitInTransaction(
            request.group_id,
            Who(request.member_id, request.group_instance_id, request.generation_id),
            request.producer_id,
            request.producer_epoch,
            tuple(offsets),
        )

    def _written_in_parts(self, replica: Replica, leader: Leader) -> Parts:
        """All parts belong to the transaction that the first one was let into: if it ends in
        between, the others are refused, for nobody would end them."""
        asked = self._asked
        began: int | None = None
        commits = CommitsInParts(
            self._call,
            self._request.group_id,
            TxnOffsetCommitResponse(topics=asked.topics),
            asked.told,
        )
        for some in in_turns(zip(asked.offsets, asked.undecided, strict=True)):
            rows = [row for _, row in some]
            refusal = None if began is None else self._refusal(replica, leader, began)
            if began == _NOWHERE:
                commits.follow_first(rows)
            elif refusal is not None:
                commits.refuse(refusal, rows)
            else:
                commits.ask(self._part([offset for offset, _ in some]), rows)
                began = _began(replica, self._batch)
            yield None
        commits.end()
        return None

    def _refusal(self, replica: Replica, leader: Leader, began: int) -> ErrorCode | None:
        """Why a further part of the transaction that began there may not be written."""
        if replica.leader is not leader:
            return ErrorCode.NOT_COORDINATOR
        if began != _began(replica, self._batch):
            return ErrorCode.INVALID_TXN_STATE
        return None


def _began(replica: Replica, batch: First) -> int:
    """Where the producer's open transaction began in this log; `_NOWHERE` if it has none, as after
    its first part was refused."""
    known = replica.log.producers.get(batch.producer_id)
    if known is None or known.epoch != batch.producer_epoch:
        return _NOWHERE
    return known.txn_start


ROUTE = Route(API, range(6), txn_offset_commit, "pending until the transaction's marker")
