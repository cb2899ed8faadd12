"""A cluster of one broker as a function of messages: enough for a client over a fake network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.machines.plans import Reply, metadata
from tidelog.clients.asking import Address, Ask
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k02_list_offsets as k02
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.k22_init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.k26_end_txn import EndTxnResponse
from tidelog.wire.records import iterate_batches, place_batch, read_header


@dataclass
class ToyCluster:
    """Topic t with some partitions. `before` may answer in its place, or break the question."""

    partitions: int = 1
    before: Callable[[Ask], Reply] = lambda _: None
    logs: dict[int, bytearray] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def __call__(self, _to: Address, ask: Ask) -> Reply:
        instead = self.before(ask)
        if instead is not None:
            return instead
        self.done.append(ask.api.name)
        handler: Callable[[Any], Any] = getattr(self, f"_{ask.api.name}")
        return handler(ask.message)

    def _Metadata(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        known = metadata(*[0] * self.partitions)
        for one in request.topics or ():
            if one.name != "t":
                known.topics += metadata(topic=one.name, error=3).topics
        return known

    def _InitProducerId(self, _request: Any) -> Any:  # noqa: N802 -- an API's name
        return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0)

    def _FindCoordinator(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        row = Coordinator(
            key=request.key, node_id=0, host="b0", port=9092, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(error_message=None, coordinators=[row])

    def _AddPartitionsToTxn(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        topics = [
            k24.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    k24.AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=0)
                    for n in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _EndTxn(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        self.done.append("commit" if request.committed else "abort")
        return EndTxnResponse(error_code=0)

    def _Produce(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        rows = []
        for one in request.topic_data[0].partition_data:
            base = self.ends.get(one.index, 0)
            batch = bytearray(one.records)
            place_batch(batch, 0, base_offset=base, leader_epoch=0)
            self.logs.setdefault(one.index, bytearray()).extend(batch)
            self.ends[one.index] = base + read_header(batch).record_count
            rows.append(PartitionProduceResponse(index=one.index, error_code=0, base_offset=base))
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])

    def _ListOffsets(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        rows = []
        for one in request.topics[0].partitions:
            known = self.ends if one.timestamp == -1 else self.starts
            offset = known.get(one.partition_index, 0)
            rows.append(
                k02.ListOffsetsPartitionResponse(
                    partition_index=one.partition_index, error_code=0, offset=offset
                )
            )
        topic = k02.ListOffsetsTopicResponse(name="t", partitions=rows)
        return k02.ListOffsetsResponse(topics=[topic])

    def _Fetch(self, request: Any) -> Any:  # noqa: N802 -- an API's name
        rows = [self._fetched(one) for one in request.topics[0].partitions]
        topic = k01.FetchableTopicResponse(topic="t", partitions=rows)
        empty = not any(row.records for row in rows)
        refused = any(row.error_code for row in rows)
        # Nothing to say: as a parked fetch whose answer the test does not wait for.
        return None if empty and not refused else k01.FetchResponse(responses=[topic])

    def _fetched(self, one: k01.FetchPartition) -> k01.PartitionData:
        number, offset = one.partition, one.fetch_offset
        start, end = self.starts.get(number, 0), self.ends.get(number, 0)
        in_range = start <= offset <= end
        log = memoryview(bytes(self.logs.get(number, b"")))
        records = b"".join(
            bytes(batch) for header, batch in iterate_batches(log) if header.last_offset >= offset
        )
        return k01.PartitionData(
            partition_index=number,
            error_code=0 if in_range else ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=end,
            aborted_transactions=None,
            records=memoryview(records if in_range else b""),
        )
