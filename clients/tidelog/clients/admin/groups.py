"""Consumer groups of either protocol: list them, see into them, delete them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.clients.admin import coordinators
from tidelog.clients.admin.consumer_protocol import assigned_partitions
from tidelog.clients.admin.coordinators import KeyType, from_all_brokers, refusal_to_repeat
from tidelog.clients.asking import Answered, Ask, Outcome, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.failures import UnsupportedError, reason_to_repeat
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k15_describe_groups import API as DESCRIBE_GROUPS
from tidelog.wire.messages.k15_describe_groups import DescribedGroup as ClassicGroup
from tidelog.wire.messages.k15_describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.k16_list_groups import API as LIST_GROUPS
from tidelog.wire.messages.k16_list_groups import ListGroupsRequest
from tidelog.wire.messages.k42_delete_groups import API as DELETE_GROUPS
from tidelog.wire.messages.k42_delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.k69_consumer_group_describe import API as DESCRIBE_CONSUMER_GROUPS
from tidelog.wire.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
)
from tidelog.wire.messages.k69_consumer_group_describe import DescribedGroup as ConsumerGroup

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""What a coordinator says of a group that it does not know."""
ACTIVE_CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`state` and `kind` are empty where a cluster does not tell."""

    name: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member. `epoch` is None in a group of the classic protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: Mapping[str, Sequence[int]]
    target: Mapping[str, Sequence[int]] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group; epochs are None in one of the classic protocol."""

    name: str
    kind: str
    state: str
    assignor: str
    coordinator: int
    members: Sequence[GroupMember] = field(default_factory=list)
    epoch: int | None = None
    target_epoch: int | None = None

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """Who has which partition."""
        return {
            (topic, Partition(partition)): member
            for member in self.members
            for topic, partitions in member.assigned.items()
            for partition in partitions
        }


def list_groups(
    view: ClusterView, states: Sequence[str] = (), kinds: Sequence[str] = ()
) -> Plan[list[ListedGroup]]:
    """The groups that all brokers coordinate, by name."""
    ask = Ask(LIST_GROUPS, ListGroupsRequest(states_filter=list(states), types_filter=list(kinds)))
    found: dict[str, ListedGroup] = {}
    yield from from_all_brokers(
        view, KeyType.GROUP, ask, lambda _, outcome: _take_list(outcome, found)
    )
    return sorted(found.values(), key=lambda one: one.name)


def _take_list(outcome: Outcome, found: dict[str, ListedGroup]) -> str:
    """Note its groups; why to ask it again, or nothing."""
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    if because := refusal_to_repeat(outcome.message.error_code, "listing groups"):
        return because
    for one in outcome.message.groups:
        found[one.group_id] = ListedGroup(
            one.group_id, one.protocol_type, one.group_state, one.group_type.lower()
        )
    return ""


def at_coordinator(
    view: ClusterView, group: str, ask: Ask, code_of: Callable[[Any], int]
) -> Plan[tuple[int, Any]]:
    """The answer of the group's coordinator, and who that is."""
    return (yield from coordinators.at_coordinator(view, group, KeyType.GROUP, ask, code_of))


def describe_group(view: ClusterView, group: str) -> Plan[DescribedGroup | None]:
    """What its coordinator knows of it; None where there is none."""
    found = yield from _describe_consumer(view, group)
    if found is None:
        found = yield from _describe_classic(view, group)
    return found


def _describe_consumer(view: ClusterView, group: str) -> Plan[DescribedGroup | None]:
    ask = Ask(DESCRIBE_CONSUMER_GROUPS, ConsumerGroupDescribeRequest(group_ids=[group]))
    try:
        broker, message = yield from at_coordinator(view, group, ask, _first_code)
    except UnsupportedError:
        return None  # a cluster from before that protocol
    row: ConsumerGroup = message.groups[0]
    code = known_code(row.error_code)
    if code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
        return None
    if code is not ErrorCode.NONE:
        raise Rejected(code, row.error_message or group)
    members = [
        GroupMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            _named(one.assignment),
            _named(one.target_assignment),
            one.member_epoch,
        )
        for one in row.members
    ]
    return DescribedGroup(
        group,
        CONSUMER,
        row.group_state,
        row.assignor_name,
        broker,
        members,
        row.group_epoch,
        row.assignment_epoch,
    )


def _describe_classic(view: ClusterView, group: str) -> Plan[DescribedGroup | None]:
    ask = Ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]))
    broker, message = yield from at_coordinator(view, group, ask, _first_code)
    row: ClassicGroup = message.groups[0]
    code = known_code(row.error_code)
    if code is ErrorCode.GROUP_ID_NOT_FOUND or row.group_state == DEAD:
        return None
    if code is not ErrorCode.NONE:
        raise Rejected(code, row.error_message or group)
    reads = row.protocol_type == ACTIVE_CONSUMER_PROTOCOL
    members = [
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            assigned_partitions(one.member_assignment) if reads else {},
        )
        for one in row.members
    ]
    return DescribedGroup(group, CLASSIC, row.group_state, row.protocol_data, broker, members)


def _first_code(message: Any) -> int:  # noqa: ANN401 -- of either protocol
    code: int = message.groups[0].error_code
    return code


def _named(assignment: Assignment) -> dict[str, list[int]]:
    return {one.topic_name: list(one.partitions) for one in assignment.topic_partitions}


def delete_group(view: ClusterView, group: str) -> Plan[ErrorCode]:
    """NONE where it is gone. A lost answer is not asked for again: the group would be unknown."""
    ask = Ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group]))
    _, message = yield from at_coordinator(
        view, group, ask, lambda answer: answer.results[0].error_code
    )
    return known_code(message.results[0].error_code)
