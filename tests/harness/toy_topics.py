"""A cluster of one broker that knows nothing but topics, offsets and timestamps: for plans."""

from dataclasses import dataclass, field
from typing import Any

from harness.plans import FakeNetwork, metadata
from tidelog.clients.asking import Address, Ask
from tidelog.clients.client import Client
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode
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


@dataclass
class Log:
    """One partition: record n was written at n seconds."""

    earliest: int = 0
    latest: int = 0
    stable: int | None = None
    """Where a transaction is open."""

    def find(self, timestamp: int, isolation: int) -> int:
        if timestamp == -2:
            return self.earliest
        if timestamp == -1:
            return self.stable if isolation and self.stable is not None else self.latest
        first = max(self.earliest, -(-timestamp // 1000))
        return first if first < self.latest else -1


@dataclass
class ToyTopics:
    """Topics by name; what a group was told is in `told`."""

    topics: dict[str, list[Log]]
    told: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    code_for_groups: ErrorCode = ErrorCode.NONE

    def network(self) -> FakeNetwork:
        return FakeNetwork(self.answer)

    def client(self) -> Client:
        return Client(self.network(), [Address("b0", 9092)])

    def answer(self, _to: Address, ask: Ask) -> Any:
        match ask.message:
            case MetadataRequest():
                return self._metadata(ask.message)
            case ListOffsetsRequest():
                return self._offsets(ask.message)
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
