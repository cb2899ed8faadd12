"""A broker with transactions as a function of messages: leader and coordinator of everything.

It keeps Kafka's rules: epochs, sequences, partitions that must be part of the transaction, markers;
in version 2 of the protocol partitions join by being written to, and each end takes an epoch. A
draw breaks requests: lost before or after they worked, or
held back and delivered when nobody waits for them any more.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.machines.plans import Reply, metadata
from tidelog.clients.asking import Address, Ask, Cause, Features
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.records import iterate_records, read_header

PRODUCER = 7
BAD = b"bad"
"""A value that no broker takes."""
SAFE = frozenset({"Metadata", "FindCoordinator"})
VERSION_2 = Features(3, {"transaction.version": 2})
MEANS_VERSION_2 = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
"""From these versions on."""


class Batch(NamedTuple):
    epoch: int
    sequence: int
    values: tuple[bytes, ...]


class Marker(NamedTuple):
    committed: bool


@dataclass
class Log:
    """One partition."""

    entries: list[Batch | Marker] = field(default_factory=list)
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    epoch: int = -1
    is_open: bool = False

    @property
    def end(self) -> int:
        return sum(len(one.values) if isinstance(one, Batch) else 1 for one in self.entries)

    def append(self, batch: Batch) -> ErrorCode:
        if batch.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.epoch > self.epoch:
            self.epoch = batch.epoch
            self.recent.clear()
        if (batch.sequence, len(batch.values)) in self.recent:
            return ErrorCode.NONE
        if batch.sequence != (sum(self.recent[-1]) if self.recent else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.recent.append((batch.sequence, len(batch.values)))
        self.entries.append(batch)
        self.is_open = True
        return ErrorCode.NONE

    def mark(self, epoch: int, *, committed: bool) -> None:
        self.entries.append(Marker(committed))
        self.is_open = False
        if epoch > self.epoch:
            self.epoch = epoch
            self.recent.clear()

    def visible(self) -> list[bytes]:
        """What readers of committed records see."""
        seen: list[bytes] = []
        waiting: list[bytes] = []
        for one in self.entries:
            if isinstance(one, Batch):
                waiting += one.values
            else:
                seen += waiting if one.committed else []
                waiting = []
        return seen


Handler = Callable[[Any], Any]
RETRIED: dict[str, tuple[ErrorCode, ...]] = {
    "Produce": (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS),
    "TxnOffsetCommit": (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
}
"""What else than CONCURRENT_TRANSACTIONS and the like passes."""
AT_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


@dataclass
class ToyTransactions:
    """`codes` of an API are answered before anything else is looked at, one after the other."""

    partitions: int = 1
    faults: random.Random | None = None
    codes: dict[str, list[ErrorCode | Cause]] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)
    epoch: int = -1
    part_of: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    held: list[Callable[[], object]] = field(default_factory=list)
    last_end: bool | None = None
    bumps: bool = False
    """It speaks version 2, and version 1 no more."""

    def __post_init__(self) -> None:
        self.logs = [Log() for _ in range(self.partitions)]

    def __call__(self, _to: Address, ask: Ask) -> Reply:
        name = ask.api.name
        code = self.codes[name].pop(0) if self.codes.get(name) else ErrorCode.NONE
        if isinstance(code, Cause):
            return code
        least = MEANS_VERSION_2.get(name)
        if least is not None:
            assert ask.version_min == least if self.bumps else ask.version_max == least - 1
        if self.faults is None or name in SAFE:
            return self._answer(name, ask.message, code)
        return self._fate(self.faults, name, ask.message)

    def fence(self) -> None:
        """Another producer takes the id over."""
        self._end(committed=False)
        self.epoch += 1 + self.bumps
        self.last_end = None

    def time_out(self) -> None:
        """Its time is up: version 2 has it go on under the epoch of that end."""
        self.epoch += 1
        self._end(committed=False)

    def _fate(self, faults: random.Random, name: str, message: Any) -> Reply:
        while self.held and faults.random() < 0.3:
            self.held.pop(0)()
        fate = faults.random()
        if fate < 0.06:
            return Cause.UNREACHABLE
        if fate < 0.12:
            self._answer(name, message)
            return Cause.UNREACHABLE
        if fate < 0.16 and name == "Produce":
            self.held.append(lambda: self._answer(name, message))
            return Cause.TIMED_OUT
        if fate < 0.24:
            code = faults.choice(RETRIED.get(name, AT_COORDINATOR))
            return self._answer(name, message, code)
        if fate < 0.25 and name not in {"InitProducerId", "EndTxn"}:
            return self._answer(name, message, ErrorCode.TRANSACTION_ABORTABLE)
        return self._answer(name, message)

    def _answer(self, name: str, message: Any, code: ErrorCode = ErrorCode.NONE) -> Any:
        self.asked.append(message)
        handler: Callable[[Any, ErrorCode], Any] = getattr(self, f"_{name}")
        if code is ErrorCode.NONE:
            self.done.append(name)
        return handler(message, code)

    # -- what is asked ----------------------------------------------------------------------------

    def _Metadata(self, request: Any, _code: ErrorCode) -> Any:  # noqa: N802 -- an API's name
        known = metadata(*[0] * self.partitions, brokers=(0,))
        for one in request.topics or ():
            if one.name != "t":
                known.topics += metadata(topic=one.name, error=3).topics
        return known

    def _FindCoordinator(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        row = k10.Coordinator(key=request.key, node_id=0, error_code=code)
        return k10.FindCoordinatorResponse(coordinators=[row])

    def _InitProducerId(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        current = request.producer_epoch
        if code is ErrorCode.NONE and current not in {-1, self.epoch, self.epoch - 1}:
            code = ErrorCode.PRODUCER_FENCED
        if code is not ErrorCode.NONE:
            return k22.InitProducerIdResponse(error_code=code, producer_epoch=-1)
        if current in {-1, self.epoch}:  # else it is asked again for what it has got
            self._end(committed=False)
            self.epoch += 1
        return k22.InitProducerIdResponse(
            error_code=0, producer_id=PRODUCER, producer_epoch=self.epoch
        )

    def _AddPartitionsToTxn(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        assert not self.bumps
        code = code or self._fenced(request.v3_and_below_producer_epoch)
        topics = []
        for topic in request.v3_and_below_topics:
            if code is ErrorCode.NONE:
                self.part_of.update(topic.partitions)
                self.last_end = None
            rows = [
                k24.AddPartitionsToTxnPartitionResult(
                    partition_index=one, partition_error_code=code
                )
                for one in topic.partitions
            ]
            topics.append(
                k24.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)
            )
        return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _AddOffsetsToTxn(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        assert not self.bumps
        code = code or self._fenced(request.producer_epoch)
        if code is ErrorCode.NONE:
            self.groups.add(request.group_id)
            self.last_end = None
        return k25.AddOffsetsToTxnResponse(error_code=code)

    def _TxnOffsetCommit(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        code = code or self._fenced(request.producer_epoch)
        if code is ErrorCode.NONE and self.bumps:
            self.groups.add(request.group_id)
            self.last_end = None
        if code is ErrorCode.NONE and request.group_id not in self.groups:
            code = ErrorCode.INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            rows = []
            for one in topic.partitions:
                if code is ErrorCode.NONE:
                    self.pending[topic.name, one.partition_index] = one.committed_offset
                rows.append(
                    k28.TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
            topics.append(k28.TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return k28.TxnOffsetCommitResponse(topics=topics)

    def _EndTxn(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        if self.bumps:
            return self._end_and_bump(request, code)
        code = code or self._fenced(request.producer_epoch)
        if code is ErrorCode.NONE:
            if self.part_of or self.groups:
                self._end(committed=request.committed)
            elif self.last_end is not request.committed:
                code = ErrorCode.INVALID_TXN_STATE
        return k26.EndTxnResponse(error_code=code)

    def _end_and_bump(self, request: Any, code: ErrorCode) -> k26.EndTxnResponse:
        again = request.producer_epoch == self.epoch - 1 and self.last_end is not None
        code = code or (self._ended_so(request) if again else self._may_end(request))
        if code is not ErrorCode.NONE:
            return k26.EndTxnResponse(error_code=code)
        if not again:
            self.epoch += 1
            self._end(committed=request.committed)
        return k26.EndTxnResponse(error_code=0, producer_id=PRODUCER, producer_epoch=self.epoch)

    def _ended_so(self, request: k26.EndTxnRequest) -> ErrorCode:
        is_same = self.last_end is request.committed
        return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE

    def _may_end(self, request: k26.EndTxnRequest) -> ErrorCode:
        is_open = bool(self.part_of or self.groups)
        if request.committed and not is_open:
            return self._fenced(request.producer_epoch) or ErrorCode.INVALID_TXN_STATE
        return self._fenced(request.producer_epoch)

    def _Produce(self, request: Any, code: ErrorCode) -> Any:  # noqa: N802 -- as above
        (topic,) = request.topic_data
        rows = []
        for one in topic.partition_data:
            base = self.logs[one.index].end
            what = code or self._append(one.index, one.records)
            rows.append(
                k00.PartitionProduceResponse(index=one.index, error_code=what, base_offset=base)
            )
        answers = [k00.TopicProduceResponse(name="t", partition_responses=rows)]
        return k00.ProduceResponse(responses=answers)

    # -- what it does -----------------------------------------------------------------------------

    def _append(self, index: int, records: memoryview) -> ErrorCode:
        header = read_header(records)
        values = tuple(record.value or b"" for record in iterate_records(records))
        if BAD in values:
            return ErrorCode.INVALID_RECORD
        batch = Batch(header.producer_epoch, header.base_sequence, values)
        if batch.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.bumps:
            self.part_of.add(index)
            self.last_end = None
        if index not in self.part_of:
            return ErrorCode.INVALID_TXN_STATE
        return self.logs[index].append(batch)

    def _end(self, *, committed: bool) -> None:
        for one in sorted(self.part_of):
            self.logs[one].mark(self.epoch, committed=committed)
        if committed:
            self.offsets.update(self.pending)
        self.part_of.clear()
        self.groups.clear()
        self.pending.clear()
        self.last_end = committed

    def _fenced(self, epoch: int) -> ErrorCode:
        return ErrorCode.PRODUCER_FENCED if epoch != self.epoch else ErrorCode.NONE
