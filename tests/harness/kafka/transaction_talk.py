"""A talk about a transaction, request by request, as a text that any cluster can be held to.

Producer ids become letters in the order in which a talk meets them. After each request stands how
the transactional id is described; in the end, what its log and the log of the topic say.
"""

import time
from typing import Any

from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import AGAIN, batches, coordinator, leader, recorded
from harness.processes.cluster import until
from tidelog.coordinator.transactions.records import Transaction
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Origin,
    read_marker,
)

OLD, ADDING = 11, 12
"""Versions of produce: partitions are added before, or by it."""
OLD_END, BUMPING_END = 4, 5
_FETCH_VERSION = 11
_FETCH_BYTES = 1 << 22
_NO_PRODUCER = -1
_NOT_YET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""A topic, or a coordinator, is being made."""


class Talk:
    """One transactional id, and whoever speaks for it."""

    def __init__(self, bootstrap: str, name: str, topic: str, timeout_ms: int = 60_000) -> None:
        self.lines: list[str] = []
        self.producer_id, self.epoch = _NO_PRODUCER, -1
        self._bootstrap = bootstrap
        self._name = name
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._letters: dict[int, str] = {_NO_PRODUCER: "-"}
        self._sequence = 0

    # -- what is said

    def init(self, *known: int) -> None:
        """With an epoch, as a producer that says who it was."""
        request = k22.InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=self._timeout_ms
        )
        if known:
            request.producer_id, request.producer_epoch = self.producer_id, known[0]
        answer = self._ask_patiently(k22.API, 4, request)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self._becomes(answer.producer_id, answer.producer_epoch)
        who = f" of epoch {known[0]}" if known else ""
        letter = self._letter(answer.producer_id)
        self._note(f"InitProducerId{who}: {code.name} {letter} {answer.producer_epoch}")

    def add(self, at: int | None = None) -> None:
        epoch = self._epoch(at)
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        (row,) = self._ask(k24.API, 3, request).results_by_topic_v3_and_below
        code = ErrorCode(row.results_by_partition[0].partition_error_code)
        self._note(f"AddPartitionsToTxn at {epoch}: {code.name}")

    def write(
        self, version: int = ADDING, at: int | None = None, sequence: int | None = None
    ) -> None:
        epoch = self._epoch(at)
        number = self._sequence if sequence is None else sequence
        origin = Origin(self.producer_id, epoch, number, TRANSACTIONAL_BIT)
        batch = batch_of(b"value", timestamp=time.time_ns() // 1_000_000, origin=origin)
        data = k00.PartitionProduceData(index=0, records=memoryview(batch))
        request = k00.ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[k00.TopicProduceData(name=self._topic, partition_data=[data])],
        )
        found: list[ErrorCode] = []

        def is_said() -> bool:
            with RawClient(leader(self._bootstrap, self._topic)) as client:
                (topic,) = client.ask(k00.API, version, request).responses
            found[:] = [ErrorCode(topic.partition_responses[0].error_code)]
            return found[0] not in _NOT_YET

        until(is_said, f"{self._topic} is led")
        (code,) = found
        if code is ErrorCode.NONE:
            self._sequence = number + 1
        self._note(f"Produce {version} at {epoch}, sequence {number}: {code.name}")

    def add_offsets(self, group: str, at: int | None = None) -> None:
        epoch = self._epoch(at)
        request = k25.AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            group_id=group,
        )
        code = ErrorCode(self._ask_patiently(k25.API, 3, request).error_code)
        self._note(f"AddOffsetsToTxn at {epoch}: {code.name}")

    def offsets(self, version: int, group: str, at: int | None = None) -> None:
        epoch = self._epoch(at)
        row = k28.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name=self._topic, partitions=[row])],
        )
        found: list[ErrorCode] = []

        def is_said() -> bool:
            with RawClient(coordinator(self._bootstrap, group, kind=0)) as client:
                (topic,) = client.ask(k28.API, version, request).topics
            found[:] = [ErrorCode(topic.partitions[0].error_code)]
            return found[0] not in AGAIN

        until(is_said, f"{group} is coordinated")
        self._note(f"TxnOffsetCommit {version} at {epoch}: {found[0].name}")

    def end(
        self,
        outcome: str,
        version: int = BUMPING_END,
        at: int | None = None,
        of: int | None = None,
    ) -> None:
        """`at` another epoch, or `of` another producer, it comes late and changes nothing here."""
        epoch = self._epoch(at)
        producer_id = self.producer_id if of is None else of
        request = k26.EndTxnRequest(
            transactional_id=self._name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=outcome == "commit",
        )
        answer = self._ask(k26.API, version, request)
        code = ErrorCode(answer.error_code)
        who = f"{self._letter(answer.producer_id)} {answer.producer_epoch}"
        letter = self._letter(producer_id)
        self._note(f"EndTxn {version} {outcome} at {letter} {epoch}: {code.name} {who}")
        if code is ErrorCode.NONE and version >= BUMPING_END and at is None and of is None:
            self._becomes(answer.producer_id, answer.producer_epoch)

    def waits_for(self, state: str) -> None:
        until(lambda: self._described().transaction_state == state, f"{self._name} is {state}")
        self._note(f"until {state}")

    def wind(self, to: int) -> None:
        """Use epochs up."""
        request = k22.InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=self._timeout_ms
        )
        with RawClient(coordinator(self._bootstrap, self._name)) as client:
            while self.epoch < to:
                answer = client.ask(k22.API, 4, request)
                if answer.error_code == 0:
                    self._becomes(answer.producer_id, answer.producer_epoch)
        self._note(f"InitProducerId until {to}")

    # -- what has become of it

    def logs(self, last: int = 100) -> None:
        """The last records of the id, and all of the topic."""
        states = [f"    {self._recorded(one)}" for one in recorded(self._bootstrap, self._name)]
        self.lines += ["  in the log of the id:", *states[-last:]]
        written = (
            f"    {self._letter(header.producer_id)} {header.producer_epoch} {_kind(header, batch)}"
            for header, batch in batches(self._bootstrap, self._topic)
        )
        self.lines += ["  in the log of the topic:", *written]

    def _recorded(self, value: Transaction) -> str:
        words = [value.state.word, self._letter(value.producer_id), str(value.producer_epoch)]
        before = value.previous_producer_id
        if value.state.is_complete and before not in {_NO_PRODUCER, value.producer_id}:
            words.append(f"before {self._letter(before)}")
        if value.next_producer_id != _NO_PRODUCER:
            words.append(f"next {self._letter(value.next_producer_id)}")
        if value.started_ms >= 0:
            words.append("begun")
        places = " ".join(sorted(_shown(topic) for topic, _ in value.partitions))
        return f"{' '.join(words)} version {value.client_version} [{places}]"

    # -- how it is said

    def _epoch(self, at: int | None) -> int:
        return self.epoch if at is None else at

    def _becomes(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequence = 0
        self.producer_id, self.epoch = producer_id, epoch

    def _letter(self, producer_id: int) -> str:
        return self._letters.setdefault(producer_id, "-abcdefgh"[len(self._letters)])

    def _ask(self, api: Any, version: int, request: object) -> Any:
        with RawClient(coordinator(self._bootstrap, self._name)) as client:
            return client.ask(api, version, request)

    def _ask_patiently(self, api: Any, version: int, request: object) -> Any:
        answers: list[Any] = []

        def is_said() -> bool:
            answers.append(self._ask(api, version, request))
            return answers[-1].error_code not in AGAIN

        until(is_said, f"an answer to {api.name}")
        return answers[-1]

    def _described(self) -> k65.TransactionState:
        request = k65.DescribeTransactionsRequest(transactional_ids=[self._name])
        (found,) = self._ask(k65.API, 0, request).transaction_states
        state: k65.TransactionState = found
        return state

    def _note(self, said: str) -> None:
        """With how the id stands once its markers are written."""
        until(lambda: "Prepare" not in self._described().transaction_state, "it is complete")
        now = self._described()
        places = " ".join(sorted(_shown(one.topic) for one in now.topics))
        stands = f"{now.transaction_state} {self._letter(now.producer_id)} {now.producer_epoch}"
        self.lines.append(f"  {said} -> {stands} [{places}]")


def _shown(topic: str) -> str:
    return topic if topic.startswith("__") else "t"


def _kind(header: BatchHeader, batch: memoryview) -> str:
    if not header.is_control:
        return f"data, sequence {header.base_sequence}"
    marker = read_marker(header, batch)
    assert marker is not None
    return "commit" if marker.committed else "abort"
