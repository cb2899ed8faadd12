"""What the log says of one group of the consumer protocol: only replaying records changes it.

A group's epoch moves with every change of who is in it and of what they want. The target assignment
is made for one epoch, and each member comes to it by itself.
"""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from msgspec.structs import replace

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Assignment
from tidelog.node.groups.consumer_member import LEFT, ClassicSide, Holdings, Member
from tidelog.node.groups.records_consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerRecord,
    CurrentPartitions,
    MemberState,
    TargetPartitions,
)

NOTHING: Final[Assignment] = {}
STABLE: Final = "Stable"


class LoggedGroup:
    """One group.

    Invariant: no partition is held by two members; `holders` says by whom each is.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.is_loaded = False
        """While it is not, records may be missing between those that are replayed."""
        self.epoch = 0
        self.metadata_hash = 0
        """Of the topics it subscribes to: when one comes, goes or grows, the group starts anew."""
        self.assignment_epoch = 0
        """Which epoch the target is of."""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Static members by instance."""
        self.target: dict[str, Assignment] = {}
        self.holders: dict[tuple[Uuid, int], str] = {}
        self.matched: dict[str, frozenset[str]] = {}
        """The topics that each expression matched when it was last looked at."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """As Kafka's tools name it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return STABLE if settled else "Reconciling"

    def is_free(self, topic: Uuid, partition: int, *, member: str = "") -> bool:
        """Whether nobody holds it, or only this member does."""
        return self.holders.get((topic, partition), member) == member

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names that a member subscribes to, its expression's among them."""
        names = frozenset(member.topics)
        if member.regex is None:
            return names
        return names | self.matched.get(member.regex, frozenset())

    def assignor(self) -> str:
        """The one that most members ask for."""
        return preferred_assignor(self.members.values())

    def classic_protocols(self) -> frozenset[str] | None:
        """What every member of the classic protocol offers; None where there is none."""
        sides = [one.classic for one in self.members.values() if one.classic is not None]
        if not sides:
            return None
        offered = [frozenset(name for name, _ in side.protocols) for side in sides]
        return frozenset.intersection(*offered)

    def topics(self) -> frozenset[str]:
        """The names that anybody in it subscribes to."""
        return frozenset().union(*map(self.topics_of, self.members.values()))

    def replay(self, record: ConsumerRecord) -> None:
        """The only change. A group whose metadata is taken back is to be dropped by its owner."""
        value = record.value
        match record.key:
            case ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                self._replay_group(value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(
                    value, ConsumerGroupTargetAssignmentMetadataValue
                )
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
            case ConsumerGroupMemberMetadataKey(member=member):
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(member, value)
            case ConsumerGroupTargetAssignmentMemberKey(member=member):
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._replay_target(member, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member=member):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_current(member, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=text):
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                self._replay_expression(text, value)
            case _:
                assert_never(record.key)

    def _replay_group(self, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            # As of a classic group: a log that is compacted while it is loaded may go back.
            is_forward = value.epoch >= self.epoch
            assert is_forward or not self.is_loaded, (value.epoch, self.epoch)
            self.epoch = value.epoch
            self.metadata_hash = value.metadata_hash

    def _replay_member(self, name: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            member = self.members.get(name)
            if member is not None:
                self._hold(member, {}, {})
                del self.members[name]
                self._forget_instance(member)
            return
        before = self.members.get(name) or Member(name)
        if before.instance_id != value.instance_id:
            self._forget_instance(before)
        self.members[name] = replace(
            before,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=_classic_side(value.classic_member_metadata),
        )
        if value.instance_id is not None:
            self.instances[value.instance_id] = name

    def _forget_instance(self, member: Member) -> None:
        """Unless another member has it by now."""
        instance = member.instance_id
        if instance is not None and self.instances.get(instance) == member.member_id:
            del self.instances[instance]

    def _replay_target(
        self, name: str, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(name, None)
            return
        self.target[name] = {
            one.topic_id: frozenset(one.partitions) for one in value.topic_partitions
        }

    def _replay_current(
        self, name: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(name)
        if value is None:
            if member is not None:
                self._hold(member, {}, {})
                self.members[name] = replace(member, epoch=LEFT, assigned={}, revoking={})
            return
        # Compaction may have taken the member's own record, where its tombstones follow.
        member = member or Member(name)
        assigned = _holdings(value.assigned_partitions, value.member_epoch)
        revoking = _holdings(value.partitions_pending_revocation, value.member_epoch)
        self._hold(member, assigned, revoking)
        self.members[name] = replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=assigned,
            revoking=revoking,
        )

    def _hold(self, member: Member, assigned: Holdings, revoking: Holdings) -> None:
        """Let the member hold this instead of what it held."""
        for one in member.held():
            if self.holders.get(one) == member.member_id:
                del self.holders[one]
        for holdings in (assigned, revoking):
            for topic, partitions in holdings.items():
                for partition in partitions:
                    self.holders[topic, partition] = member.member_id

    def _replay_expression(
        self, text: str, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.matched.pop(text, None)
        else:
            self.matched[text] = frozenset(value.topics)


def _classic_side(said: ClassicMemberMetadata | None) -> ClassicSide | None:
    if said is None:
        return None
    protocols = tuple((one.name, bytes(one.metadata)) for one in said.supported_protocols)
    return ClassicSide(said.session_timeout_ms, protocols)


def _said_of(side: ClassicSide | None) -> ClassicMemberMetadata | None:
    if side is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=side.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in side.protocols
        ],
    )


def preferred_assignor(members: Iterable[Member]) -> str:
    """A log may hold one that this program does not have."""
    asked = [one.assignor or DEFAULT_ASSIGNOR for one in members if one.assignor in ASSIGNORS]
    return max(sorted(set(asked)), key=asked.count, default=DEFAULT_ASSIGNOR)


def _holdings(topics: list[CurrentPartitions], epoch: int) -> Holdings:
    """What older programs wrote has no epochs of its own: the member's stands for them."""
    return {
        one.topic_id: dict(
            zip(
                one.partitions,
                one.assignment_epochs or [epoch] * len(one.partitions),
                strict=True,
            )
        )
        for one in topics
    }


def member_record(group: str, member: Member) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupMemberMetadataKey(group=group, member=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=_said_of(member.classic),
        ),
    )


def current_record(group: str, member: Member) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group=group, member=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_current(member.assigned),
            partitions_pending_revocation=_current(member.revoking),
        ),
    )


def _current(holdings: Holdings) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic,
            partitions=list(partitions),
            assignment_epochs=list(partitions.values()),
        )
        for topic, partitions in holdings.items()
    ]


def target_record(group: str, member: str, target: Assignment) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupTargetAssignmentMemberKey(group=group, member=member),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetPartitions(topic_id=topic, partitions=sorted(partitions))
                for topic, partitions in sorted(target.items())
            ]
        ),
    )


def target_epoch_record(group: str, epoch: int, now_ms: int) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group=group),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        ),
    )


def epoch_record(group: str, epoch: int, metadata_hash: int) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupMetadataKey(group=group),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def expression_record(
    group: str, text: str, topics: frozenset[str], *, version: int, now_ms: int
) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupRegularExpressionKey(group=group, regular_expression=text),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=now_ms
        ),
    )


def member_tombstones(group: str, member: str) -> list[ConsumerRecord]:
    """A member is no more, in the order in which Kafka takes it back."""
    return [
        ConsumerRecord(ConsumerGroupCurrentMemberAssignmentKey(group=group, member=member), None),
        ConsumerRecord(ConsumerGroupTargetAssignmentMemberKey(group=group, member=member), None),
        ConsumerRecord(ConsumerGroupMemberMetadataKey(group=group, member=member), None),
    ]


def expression_tombstone(group: str, text: str) -> ConsumerRecord:
    return ConsumerRecord(
        ConsumerGroupRegularExpressionKey(group=group, regular_expression=text), None
    )


def group_tombstones(group: LoggedGroup) -> list[ConsumerRecord]:
    """A group is no more, nor who is in it."""
    name = group.group
    return [
        *(record for member in group.members for record in member_tombstones(name, member)),
        *(expression_tombstone(name, text) for text in sorted(group.matched)),
        ConsumerRecord(ConsumerGroupTargetAssignmentMetadataKey(group=name), None),
        ConsumerRecord(ConsumerGroupMetadataKey(group=name), None),
    ]


def changed_target(
    group: str, before: Mapping[str, Assignment], after: Mapping[str, Assignment]
) -> list[ConsumerRecord]:
    """Only of those whose target is another."""
    return [
        target_record(group, member, target)
        for member, target in sorted(after.items())
        if before.get(member, NOTHING) != target or member not in before
    ]
