"""A connection on which members and tools speak to group coordinators, word by word."""

from collections.abc import Mapping
from typing import Any, Final

from harness.clients.raw_socket import RawClient
from harness.machines.classic_clients import subscription
from harness.processes.cluster import until
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.node.groups.embedded import read_assignment, write_assignment
from tidelog.wire.messages import (
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k16_list_groups,
    k19_create_topics,
    k20_delete_topics,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)

NOWHERE: Final = Uuid(b"nobody has this!")
LOADING: Final = {14, 15, 16}


class Talk:
    """One connection, and the ids of topics, by which answers are told alike."""

    def __init__(self, bootstrap: str) -> None:
        self.client = RawClient(bootstrap)
        self.ids: dict[str, Uuid] = {}
        self.first = 0
        """The epoch that a conversation begins with: Kafka counts faster there."""

    def counted(self, epoch: int) -> int:
        return epoch - self.first if epoch > 0 else epoch

    def close(self) -> None:
        self.client.close()

    def make_topic(self, name: str, partitions: int) -> None:
        topic = k19_create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = k19_create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert self.client.ask(k19_create_topics.API, 7, request).topics[0].error_code == 0
        until(lambda: self._is_led(name), f"{name} is led")

    def _is_led(self, name: str) -> bool:
        asked = k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=name)])
        (topic,) = self.client.ask(k03_metadata.API, 12, asked).topics
        self.ids[name] = topic.topic_id
        return not topic.error_code and all(one.leader_id >= 0 for one in topic.partitions)

    def drop_topic(self, name: str) -> None:
        one = k20_delete_topics.DeleteTopicState(name=name)
        request = k20_delete_topics.DeleteTopicsRequest(topics=[one], timeout_ms=10_000)
        assert self.client.ask(k20_delete_topics.API, 6, request).responses[0].error_code == 0

    def name_of(self, topic: Uuid) -> str:
        found = [name for name, known in self.ids.items() if known == topic]
        return found[0] if found else {NOWHERE: "nowhere", ZERO_UUID: "zeros"}.get(topic, "?")

    def know_group(self, group: str) -> None:
        """Until its coordinator takes questions."""
        request = k10_find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])

        def is_found() -> bool:
            answer = self.client.ask(k10_find_coordinator.API, 4, request)
            return not answer.coordinators[0].error_code

        until(is_found, f"{group} has a coordinator", 30)
        until(lambda: self.fetch(group, {})[1] not in LOADING, f"{group} is loaded", 30)

    # -- offsets

    def commit_as(
        self,
        group: str,
        epoch: int,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        version: int = 9,
        member_id: str = "",
        instance: str | None = None,
    ) -> int:
        """By name."""
        one = k08_offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = k08_offset_commit.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            topics=[k08_offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[one])],
            member_id=member_id,
            group_instance_id=instance,
        )
        answer = self.client.ask(k08_offset_commit.API, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def commit(
        self, group: str, wanted: Mapping[Uuid, Mapping[int, int]], *, generation: int = -1
    ) -> object:
        """By ids; each partition's code."""
        topics = [
            k08_offset_commit.OffsetCommitRequestTopic(
                topic_id=topic,
                partitions=[
                    k08_offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                    for index, offset in offsets.items()
                ],
            )
            for topic, offsets in wanted.items()
        ]
        request = k08_offset_commit.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, topics=topics
        )
        answer = self.client.ask(k08_offset_commit.API, 10, request)
        return {
            self.name_of(topic.topic_id): sorted(
                (row.partition_index, row.error_code) for row in topic.partitions
            )
            for topic in answer.topics
        }

    def fetch(
        self, group: str, wanted: Mapping[Uuid, list[int]] | None, version: int = 10
    ) -> tuple[object, int]:
        """By ids, None for all; what is known of each partition, and the group's code."""
        topics = None
        if wanted is not None:
            topics = [
                k09_offset_fetch.OffsetFetchRequestTopics(topic_id=topic, partition_indexes=indexes)
                for topic, indexes in wanted.items()
            ]
        asked = k09_offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics)
        request = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
        (found,) = self.client.ask(k09_offset_fetch.API, version, request).groups
        rows = {
            self.name_of(topic.topic_id): sorted(
                (
                    row.partition_index,
                    row.committed_offset,
                    row.committed_leader_epoch,
                    row.metadata,
                    row.error_code,
                )
                for row in topic.partitions
            )
            for topic in found.topics
        }
        return rows, found.error_code

    def fetch_as(self, group: str, topic: str, member_id: str | None, epoch: int) -> object:
        """The group's code, and what is known of partition 0: a refusal may list it or not."""
        asked = k09_offset_fetch.OffsetFetchRequestGroup(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            topics=[k09_offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
        )
        request = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
        (found,) = self.client.ask(k09_offset_fetch.API, 9, request).groups
        rows = [row.committed_offset for one in found.topics for row in one.partitions]
        return found.error_code, [] if found.error_code else rows


class ClassicTalker:
    """A member of the classic protocol, a request at a time. Epochs are told from `talk.first`."""

    def __init__(self, talk: Talk, group: str, *topics: str, instance: str | None = None) -> None:
        self.talk = talk
        self.group = group
        self.topics = topics
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads = False

    def join(
        self, *, protocol: str = "range", kind: str = "consumer", session_ms: int = 30_000
    ) -> object:
        said = subscription(*self.topics)
        request = k11_join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=kind,
            protocols=[k11_join_group.JoinGroupRequestProtocol(name=protocol, metadata=said)],
            reason=None,
        )
        answer = self.talk.client.ask(k11_join_group.API, 9, request)
        if answer.error_code in {0, 79}:
            self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id
            self.leads = answer.leader == answer.member_id
        return (
            answer.error_code,
            self.talk.counted(answer.generation_id),
            answer.protocol_type,
            answer.protocol_name,
            "me" if self.leads else answer.leader,
            len(answer.members),
            answer.skip_assignment,
        )

    def sync(
        self, shares: Mapping[str, Mapping[str, list[int]]] | None = None, protocol: str = "range"
    ) -> object:
        """With how many partitions it has then; a leader brings everybody's."""
        request = k14_sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                k14_sync_group.SyncGroupRequestAssignment(
                    member_id=name, assignment=write_assignment(0, share)
                )
                for name, share in (shares or {}).items()
            ],
        )
        answer = self.talk.client.ask(k14_sync_group.API, 5, request)
        found = read_assignment(bytes(answer.assignment)) or {}
        counts = {name: len(partitions) for name, partitions in found.items()}
        return answer.error_code, answer.protocol_type, answer.protocol_name, counts

    def beat(self, generation: int | None = None) -> int:
        request = k12_heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(self.talk.client.ask(k12_heartbeat.API, 4, request).error_code)

    def commit(self, generation: int, topic: str, offset: int) -> object:
        return self.talk.commit_as(
            self.group, generation, topic, offset, member_id=self.member_id, instance=self.instance
        )

    def leave(self) -> object:
        one = k13_leave_group.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance, reason="enough"
        )
        request = k13_leave_group.LeaveGroupRequest(group_id=self.group, members=[one])
        answer = self.talk.client.ask(k13_leave_group.API, 5, request)
        return answer.error_code, [row.error_code for row in answer.members]


class ModernTalker:
    """A member of the consumer protocol, a heartbeat at a time."""

    def __init__(self, talk: Talk, group: str, name: str, *topics: str) -> None:
        self.talk = talk
        self.group = group
        self.name = name
        self.topics = topics
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}

    def beat(self, epoch: int | None = None) -> tuple[int, int, dict[str, int] | None]:
        """Code, epoch, and how many partitions it is told to have."""
        sent = self.epoch if epoch is None else epoch
        request = k68_consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=sent,
            rebalance_timeout_ms=30_000 if sent == 0 else -1,
            subscribed_topic_names=list(self.topics) if sent == 0 else None,
            topic_partitions=None
            if sent < 0
            else [
                k68_consumer_group_heartbeat.TopicPartitions(topic_id=topic, partitions=has)
                for topic, has in self.owned.items()
            ],
        )
        answer = self.talk.client.ask(k68_consumer_group_heartbeat.API, 1, request)
        if answer.error_code or sent < 0:
            return answer.error_code, 0, None
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return 0, self.talk.counted(self.epoch), None
        rows = answer.assignment.topic_partitions
        self.owned = {row.topic_id: list(row.partitions) for row in rows}
        counts = {self.talk.name_of(row.topic_id): len(row.partitions) for row in rows}
        return 0, self.talk.counted(self.epoch), counts

    def has(self) -> int:
        return sum(map(len, self.owned.values()))


def kind_of(talk: Talk, group: str) -> object:
    """As it is listed."""
    request = k16_list_groups.ListGroupsRequest(states_filter=[], types_filter=[])
    rows = talk.client.ask(k16_list_groups.API, 5, request).groups
    return [(row.protocol_type, row.group_type) for row in rows if row.group_id == group]


def members_of(talk: Talk, group: str) -> tuple[Any, ...]:
    """As ConsumerGroupDescribe shows them: kind, epoch, and how many partitions each has."""
    request = k69_consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group])
    (found,) = talk.client.ask(k69_consumer_group_describe.API, 1, request).groups
    rows = sorted(
        (
            one.member_type,
            talk.counted(one.member_epoch),
            sum(len(topic.partitions) for topic in one.assignment.topic_partitions),
            list(one.subscribed_topic_names),
        )
        for one in found.members
    )
    epochs = talk.counted(found.group_epoch), talk.counted(found.assignment_epoch)
    return found.error_code, found.group_state, *epochs, rows


def known_topic(talk: Talk, topic: str, partitions: int) -> None:
    """A new one, that coordinators share out: Kafka's hear of it later than its brokers."""
    talk.make_topic(topic, partitions)
    talk.know_group(f"probe-{topic}")
    probe = ModernTalker(talk, f"probe-{topic}", "probe", topic)
    until(lambda: bool(probe.beat()) and probe.has() == partitions, f"{topic} is known", 30)
    probe.beat(-1)
