"""A transactional producer that says each request by itself, in the first version of the protocol.

So a test may leave a transaction open, write into it late, or end it in one partition only. It
speaks to one node, which is everybody's leader and coordinator.
"""

from collections.abc import Callable
from typing import Any

import pytest

from harness.clients.produce_raw import VERSION as PRODUCE_VERSION
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import until
from tidelog.clients.admin.transactions import UNENDED
from tidelog.node.api import dispatch
from tidelog.wire.errors import RETRIABLE, ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin
from tidelog.wire.schema import ApiSchema

TIMEOUT_MS = 900_000
ours = pytest.mark.skipif(
    k28.API.key not in dispatch.routes().routes, reason="our brokers take no transactions yet"
)
"""For tests that need a cluster of ours to have transactions."""


class RawTransactions:
    """One transactional id. Sequences go on where they were, as long as the epoch does."""

    def __init__(self, client: RawClient, name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._client = client
        self.name = name
        self._sequences: dict[tuple[str, int], int] = {}
        self._say(k10.API, 2, k10.FindCoordinatorRequest(key=name, key_type=1))
        request = k22.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        answer = self._say(k22.API, 3, request)
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch

    def write(self, topic: str, *values: bytes, partition: int = 0, timestamp: int) -> ErrorCode:
        """Records of the open transaction, which the partition joins with them."""
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        self._say(k24.API, 3, request, _code_of_partitions)
        return self.late(topic, *values, partition=partition, timestamp=timestamp)

    def late(self, topic: str, *values: bytes, partition: int = 0, timestamp: int) -> ErrorCode:
        """Records that nobody was told of: as one that comes when its transaction has ended."""
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        origin = Origin(self.producer_id, self.epoch, sequence, TRANSACTIONAL_BIT)
        batch = batch_of(*values, origin=origin, timestamp=timestamp)
        request = produce_request(topic, batch, partition=partition)
        request.transactional_id = self.name
        answer = self._client.ask(k00.API, PRODUCE_VERSION, request)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self._sequences[place] = sequence + len(values)
        return code

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        """For partition 0; pending until the transaction is committed."""
        add = k25.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        self._say(k25.API, 3, add)
        row = k28.TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata="")
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        self._say(k28.API, 3, request, lambda answer: answer.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool) -> None:
        """Returns once nothing of it is left to be done."""
        request = k26.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        self._say(k26.API, 3, request)
        until(lambda: self.state() not in UNENDED, "the transaction has ended")

    def state(self) -> str:
        request = k65.DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = self._client.ask(k65.API, 0, request)
        state: str = answer.transaction_states[0].transaction_state
        return state

    def _say(
        self,
        api: ApiSchema[Any, Any],
        version: int,
        request: object,
        code_of: Callable[[Any], int] = lambda answer: answer.error_code,
    ) -> Any:
        """Until it is taken: who has just started may say that it is too early."""
        answers: list[Any] = []

        def is_taken() -> bool:
            answers.append(self._client.ask(api, version, request))
            code = ErrorCode(code_of(answers[-1]))
            assert code is ErrorCode.NONE or code in RETRIABLE, (api.name, code)
            return code is ErrorCode.NONE

        until(is_taken, f"{api.name} of {self.name} is taken")
        return answers[-1]


def _code_of_partitions(answer: Any) -> int:
    (topic,) = answer.results_by_topic_v3_and_below
    code: int = topic.results_by_partition[0].partition_error_code
    return code
