"""Move replicas to other brokers: begin, call off, and see what is on its way.

The controller takes a wish at once and then moves, so an answer says that it began, not that it is
done. To wish for the same again changes nothing; so who hears no answer may ask again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.clients.admin.topics import at_controller
from tidelog.clients.asking import Ask, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.kernel.ids import Partition, TopicPartition, by_topic
from tidelog.kernel.instant import ms
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k45_alter_partition_reassignments import API as ALTER
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.k46_list_partition_reassignments import API as LIST
from tidelog.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition on its way to other brokers: all it has now, those it gets, those it loses."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """What it will have."""
        return tuple(one for one in self.replicas if one not in self.removing)


@dataclass(frozen=True, slots=True)
class Reassigned:
    """What became of one wish; `code` is NONE where it was taken."""

    partition: TopicPartition
    code: ErrorCode
    detail: str


def list_reassignments(
    view: ClusterView, wanted: Iterable[TopicPartition] | None = None, *, timeout_ms: int = 30_000
) -> Plan[dict[TopicPartition, Ongoing]]:
    """Those of these partitions, or of all, whose replicas are on their way."""
    named = None
    if wanted is not None:
        named = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(wanted).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=named)
    ask = Ask(LIST, request, timeout_ns=ms(2 * timeout_ms))
    answer: ListPartitionReassignmentsResponse = yield from at_controller(
        view, ask, lambda message: [message]
    )
    _check(answer.error_code, answer.error_message)
    return {
        (topic.name, Partition(one.partition_index)): Ongoing(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def alter_reassignments(
    view: ClusterView,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    timeout_ms: int = 30_000,
) -> Plan[list[Reassigned]]:
    """Each partition on its own: the replicas it shall have, or None to call off what goes on."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=_wish(targets, name, number))
                for number in numbers
            ],
        )
        for name, numbers in by_topic(targets).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
    ask = Ask(ALTER, request, timeout_ns=ms(2 * timeout_ms))
    answer: AlterPartitionReassignmentsResponse = yield from at_controller(
        view, ask, lambda message: [message]
    )
    _check(answer.error_code, answer.error_message)
    return [
        Reassigned(
            (topic.name, Partition(one.partition_index)),
            known_code(one.error_code),
            one.error_message or "",
        )
        for topic in answer.responses
        for one in topic.partitions
    ]


def _wish(
    targets: Mapping[TopicPartition, Sequence[int] | None], name: str, number: int
) -> list[int] | None:
    replicas = targets[name, Partition(number)]
    return None if replicas is None else list(replicas)


def _check(code: int, detail: str | None) -> None:
    if code != ErrorCode.NONE:
        raise Rejected(known_code(code), detail or "the cluster moves no replicas")
