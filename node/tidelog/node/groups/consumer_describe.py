"""A group of the consumer protocol as ConsumerGroupDescribe shows it."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.consumer_log import NOTHING, LoggedGroup
from tidelog.node.groups.consumer_member import Member
from tidelog.node.groups.topics import Topics
from tidelog.wire.messages.k69_consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from tidelog.wire.messages.k69_consumer_group_describe import Member as DescribedMember

_SPEAKS_CLASSIC: Final = 0
_SPEAKS_CONSUMER: Final = 1


def described(group: LoggedGroup, topics: Topics) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(),
        members=[_member(group, member, topics) for _, member in sorted(group.members.items())],
    )


def _member(group: LoggedGroup, member: Member, topics: Topics) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(
            {topic: partitions.keys() for topic, partitions in member.assigned.items()}, topics
        ),
        target_assignment=_assignment(group.target.get(member.member_id, NOTHING), topics),
        member_type=_SPEAKS_CONSUMER if member.classic is None else _SPEAKS_CLASSIC,
    )


def _assignment(given: Mapping[Uuid, AbstractSet[int]], topics: Topics) -> Assignment:
    """Topics that are gone have no name to show, and are left out, as with Kafka."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions))
            for topic, partitions in given.items()
            if (name := topics.name_of(topic)) is not None
        ]
    )
