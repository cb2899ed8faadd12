"""A cluster of one broker that knows topics, offsets, timestamps and small records: for plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.machines.plans import FakeNetwork, metadata
from tidelog.clients.asking import Address, Ask
from tidelog.clients.client import Client
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.records import EndMarker, Record, build_batch, build_marker, place_batch

_BATCHES = 3
"""In one answer."""


@dataclass
class Log:
    """One partition: record n was written at n seconds."""

    earliest: int = 0
    latest: int = 0
    stable: int | None = None
    """Where a transaction is open."""
    markers: Mapping[int, int] = field(default_factory=dict)
    """Offsets of transactions' markers, which have times of their own in seconds."""

    def seconds(self, offset: int) -> int:
        return self.markers.get(offset, offset)

    def find(self, timestamp: int, isolation: int) -> int:
        if timestamp == -2:
            return self.earliest
        if timestamp == -1:
            return self.stable if isolation and self.stable is not None else self.latest
        young = (
            offset
            for offset in range(self.earliest, self.find(-1, isolation))
            if self.seconds(offset) * 1000 >= timestamp
        )
        return next(young, -1)

    def fetch(self, offset: int, isolation: int) -> bytes:
        """A few batches from there on, of one record each."""
        found = bytearray()
        for at in range(offset, min(offset + _BATCHES, self.find(-1, isolation))):
            time = self.seconds(at) * 1000
            if at in self.markers:
                batch = build_marker(EndMarker(1, 0, 0, committed=True), time)
            else:
                batch = build_batch([Record(0, time, None, b"%d" % at)])
            place_batch(batch, 0, base_offset=at, leader_epoch=0)
            found += batch
        return bytes(found)


@dataclass
class ToyTopics:
    """Topics by name; what a group was told is in `told`."""

    topics: dict[str, list[Log]]
    told: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    code_for_groups: ErrorCode = ErrorCode.NONE

    def network(self) -> FakeNetwork:
        return FakeNetwork(self.answer)

    def client(self, network: FakeNetwork | None = None) -> Client:
        return Client(network or self.network(), [Address("b0", 9092)])

    def answer(self, _to: Address, ask: Ask) -> Any:
        match ask.message:
            case MetadataRequest():
                return self._metadata(ask.message)
            case ListOffsetsRequest():
                return self._offsets(ask.message)
            case FetchRequest():
                return self._fetch(ask.message)
            case OffsetCommitRequest():
                return self._commit(ask.message)
            case _:
                return self._coordinators(ask.message)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = request.topics
        names = list(self.topics) if wanted is None else [one.name or "" for one in wanted]
        found = metadata(brokers=(0,))
        found.topics = [self._topic(name) for name in names]
        return found

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name, partitions=[])
        leaders = [0] * len(self.topics[name])
        topic = metadata(*leaders, topic=name, brokers=(0,)).topics[0]
        topic.is_internal = name.startswith("__")
        return topic

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=0,
                            timestamp=-1,
                            offset=self.topics[topic.name][one.partition_index].find(
                                one.timestamp, request.isolation_level
                            ),
                            leader_epoch=0,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        self._fetched(topic.topic, one, request.isolation_level)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetched(self, topic: str, asked: FetchPartition, isolation: int) -> PartitionData:
        log = self.topics[topic][asked.partition]
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=log.latest,
            records=memoryview(log.fetch(asked.fetch_offset, isolation)),
        )

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        told = self.told.setdefault(request.group_id, {})
        for topic in request.topics:
            for one in topic.partitions:
                told[topic.name, Partition(one.partition_index)] = one.committed_offset
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=self.code_for_groups
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _coordinators(self, request: Any) -> FindCoordinatorResponse:
        rows = [
            Coordinator(key=key, node_id=0, host="b0", port=9092, error_code=0, error_message=None)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)


def at(number: int, topic: str = "t") -> TopicPartition:
    """A partition of the topic that tests have mostly."""
    return topic, Partition(number)
