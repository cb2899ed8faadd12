"""A coordinator loads whatever records its log holds, in whatever order, and serves on.

While a log is loaded, compaction may replace what has not been read yet: records that stood in
between are gone, and a group that was deleted and made again seems to go back. Logs that another
program wrote may say anything. None of that may end the broker: bytes that cannot be true are
damage, and the rest is taken as it comes.
"""

import random
from typing import Any

import pytest

from harness.machines.consumer_groups import SETTINGS, TopicsInMemory, topic_id
from harness.suite.budgets import Histories
from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.shard import Decision
from tidelog.node.groups import codec
from tidelog.node.groups import records_consumer as rows
from tidelog.node.groups import requests as ask
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from tidelog.node.groups.embedded import write_assignment
from tidelog.node.groups.group import Around
from tidelog.node.groups.records import (
    CommittedOffset,
    GroupMember,
    GroupRecord,
    GroupState,
    OffsetRecord,
    PendingOffset,
)
from tidelog.node.groups.shard import GroupShard
from tidelog.wire.errors import Rejected, WireError

RECORDS_MAX = 12
REQUESTS = 12
GROUPS, MEMBERS, INSTANCES = "gh", "ab", (None, None, "i", "j")
SHARD_SETTINGS: dict[str, Any] = {
    **SETTINGS,
    "offsets.retention.check.interval.ms": 600_000,
    "offsets.retention.minutes": 1,
    "group.min.session.timeout.ms": 1,
    "group.max.session.timeout.ms": 600_000,
    "group.initial.rebalance.delay.ms": 10,
    "group.member.disconnect.ms": 0,
}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


class Garbled:
    """Records that are well formed, of few groups and members, and otherwise anything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *of: Any) -> Any:
        return self.random.choice(of)

    def record(self) -> codec.StoredRecord:
        kinds = (self.classic, self.offset, self.pending, *(self.consumer,) * 6)
        made: codec.StoredRecord = self.pick(*kinds)()
        return made

    def classic(self) -> GroupRecord:
        name = self.pick(*GROUPS)
        if self.random.random() < 0.2:
            return GroupRecord(name, None)
        members = tuple(self._classic_member() for _ in range(self.random.randint(0, 3)))
        kind, protocol = self.pick("consumer", "connect", ""), self.pick(None, "range")
        generation, leader = self._number(), self.pick(None, "a", "gone")
        return GroupRecord(name, GroupState(kind, generation, protocol, leader, 5, members))

    def _classic_member(self) -> GroupMember:
        name, instance = self.pick(*MEMBERS), self.pick(*INSTANCES)
        wants, has = self.pick(SUBSCRIPTION, b"", b"\0"), self.pick(b"", b"?", self._assignment())
        return GroupMember(name, instance, "", "", self._number(), self._number(), wants, has)

    def _assignment(self) -> bytes:
        return write_assignment(0, {"t": [0]})

    def offset(self) -> OffsetRecord:
        value = CommittedOffset(self._number(), -1, "", 0, -1, topic_id(self.pick("t", "gone")))
        return OffsetRecord(self.pick(*GROUPS), "t", 0, self.pick(None, value))

    def pending(self) -> PendingOffset:
        return PendingOffset(self.pick(7, 8), 0, self.offset())

    def consumer(self) -> rows.ConsumerRecord:
        group, member = self.pick(*GROUPS), self.pick(*MEMBERS)
        made: list[tuple[Any, Any]] = [
            (
                rows.ConsumerGroupMetadataKey(group=group),
                rows.ConsumerGroupMetadataValue(epoch=self._number()),
            ),
            (
                rows.ConsumerGroupTargetAssignmentMetadataKey(group=group),
                rows.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self._number()),
            ),
            (
                rows.ConsumerGroupMemberMetadataKey(group=group, member=member),
                self._member_metadata(),
            ),
            (
                rows.ConsumerGroupTargetAssignmentMemberKey(group=group, member=member),
                rows.ConsumerGroupTargetAssignmentMemberValue(
                    topic_partitions=[
                        rows.TargetPartitions(topic_id=self._topic(), partitions=[0, 1])
                    ]
                ),
            ),
            (
                rows.ConsumerGroupCurrentMemberAssignmentKey(group=group, member=member),
                rows.ConsumerGroupCurrentMemberAssignmentValue(
                    member_epoch=self._number(),
                    previous_member_epoch=self._number(),
                    state=self.pick(0, 0, 1, 2, 99),
                    assigned_partitions=self._current(),
                    partitions_pending_revocation=self._current(),
                ),
            ),
            (
                rows.ConsumerGroupRegularExpressionKey(group=group, regular_expression="t.*"),
                rows.ConsumerGroupRegularExpressionValue(topics=["t"], version=0, timestamp=0),
            ),
        ]
        key, value = self.pick(*made)
        return rows.ConsumerRecord(key, None if self.random.random() < 0.2 else value)

    def _member_metadata(self) -> rows.ConsumerGroupMemberMetadataValue:
        side = rows.ClassicMemberMetadata(
            session_timeout_ms=self._number(),
            supported_protocols=self.pick(
                [], [rows.ClassicProtocol(name="range", metadata=SUBSCRIPTION)]
            ),
        )
        return rows.ConsumerGroupMemberMetadataValue(
            instance_id=self.pick(*INSTANCES),
            client_id="",
            client_host="",
            subscribed_topic_names=self.pick([], ["t"], ["gone", "t"]),
            subscribed_topic_regex=self.pick(None, "t.*", "("),
            rebalance_timeout_ms=self._number(),
            server_assignor=self.pick(None, "range", "nobody's"),
            classic_member_metadata=self.pick(None, side),
        )

    def _current(self) -> list[rows.CurrentPartitions]:
        partitions = self.pick([], [0], [0, 1])
        epochs = self.pick(None, [1], [1, 2])
        one = rows.CurrentPartitions(
            topic_id=self._topic(), partitions=partitions, assignment_epochs=epochs
        )
        found: list[rows.CurrentPartitions] = self.pick([], [one])
        return found

    def _topic(self) -> Any:
        return topic_id(self.pick("t", "gone"))

    def _number(self) -> int:
        return int(self.pick(-1, 0, 1, 2, 50))

    def request(self) -> object:
        group, member = self.pick(*GROUPS), self.pick("", *MEMBERS)
        instance, epoch = self.pick(*INSTANCES), self._number()
        who = ask.Who(member, instance, epoch)
        made: object = self.pick(
            ask.ListGroups(),
            ask.DescribeGroup(group),
            DescribeConsumerGroup(group),
            ask.Heartbeat(group, who),
            ask.SyncGroup(group, who, None, None, (("a", b""),)),
            ask.LeaveGroup(group, (ask.LeavingMember(member, instance),)),
            ask.DeleteGroup(group),
            ask.ForgetDeletedTopics(),
            ask.FetchOffsets(group, self.pick(None, member), epoch, None, require_stable=True),
            ask.CommitOffsets(group, who, (ask.OffsetToCommit("t", topic_id("t"), 0, 1, -1, ""),)),
            *(self._join(group, who),) * 2,
            *(self._beat(group, who),) * 3,
        )
        return made

    def _join(self, group: str, who: ask.Who) -> ask.JoinGroup:
        return ask.JoinGroup(
            group=group,
            who=who,
            client_id="",
            client_host="",
            session_timeout_ms=1_000,
            rebalance_timeout_ms=1_000,
            protocol_type="consumer",
            protocols=(("range", SUBSCRIPTION),),
            needs_known_id=False,
            may_skip_assignment=True,
            new_member_id=f"new-{self.random.getrandbits(64)}",
        )

    def _beat(self, group: str, who: ask.Who) -> ConsumerHeartbeat:
        epoch = self.pick(0, who.generation)
        return ConsumerHeartbeat(
            group=group,
            member_id=who.member_id or "c",
            epoch=epoch,
            instance_id=who.instance_id,
            rebalance_timeout_ms=1_000,
            topics=("t",),
            owned=() if epoch == 0 else self.pick(None, (), ((topic_id("t"), 0),)),
        )


class Coordinator:
    """Loads, then decides and replays as a host does."""

    def __init__(self) -> None:
        topics = TopicsInMemory(t=2)
        around = Around(SHARD_SETTINGS, topics, lambda now: now // ms(1), lambda _told: None)
        self.shard = GroupShard(around)
        self.now = Instant(0)

    def load(self, record: codec.StoredRecord) -> None:
        if isinstance(record, PendingOffset):
            self.shard.replay(record)
            return
        try:
            found = codec.read(*codec.pair(record))
        except WireError:
            return  # the partition would not be served, and its damage told
        assert found is not None
        self.shard.replay(found)

    def decide(self, request: object) -> None:
        try:
            decision = self.shard.decide(self.now, RequestId(1), request)
        except Rejected:
            return
        self._take(decision)

    def wait(self, milliseconds: int) -> None:
        self.now = Instant(self.now + ms(milliseconds))
        due = self.shard.deadline()
        if due is not None and due <= self.now:
            self._take(self.shard.expire(self.now))

    def _take(self, decision: Decision[codec.StoredRecord, Any]) -> None:
        for record in decision.records:
            self.shard.replay(record)


def serve(seed: int) -> None:
    garbled, one = Garbled(seed), Coordinator()
    for _ in range(garbled.random.randint(1, RECORDS_MAX)):
        one.load(garbled.record())
        if garbled.random.random() < 0.1:
            committed = garbled.random.random() < 0.5
            one.shard.replay_marker(garbled.pick(7, 8), committed=committed)
    one.shard.loaded(one.now)
    for _ in range(REQUESTS):
        one.decide(garbled.request())
        one.wait(garbled.pick(0, 1, 700, 61_000))


@pytest.mark.timeout(900)
def test_whatever_its_log_holds_a_coordinator_serves_on(histories: Histories) -> None:
    histories.run(serve)
