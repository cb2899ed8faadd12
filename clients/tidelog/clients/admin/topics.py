"""Create and delete topics. Any broker takes it to the controller; one that does not says 41.

Nothing is sent twice where the first sending may have worked: "it exists already" would be the
answer to our own request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.clients.asking import Ask, Call, Pause, Plan, Somewhere
from tidelog.clients.cluster_view import ClusterView, known_code, refresh
from tidelog.clients.failures import response
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import ms
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k19_create_topics import API as CREATE_TOPICS
from tidelog.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tidelog.wire.messages.k20_delete_topics import API as DELETE_TOPICS
from tidelog.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

BROKER_CHOOSES = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What to create. `assignment` names the replicas of each partition, or nothing at all."""

    name: str
    partitions: int = BROKER_CHOOSES
    replication_factor: int = BROKER_CHOOSES
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class TopicDone:
    """What became of one topic; `code` is NONE where it worked."""

    name: str
    code: ErrorCode
    detail: str
    partitions: int = BROKER_CHOOSES
    replication_factor: int = BROKER_CHOOSES


def create_topics(
    view: ClusterView, topics: Sequence[NewTopic], *, timeout_ms: int = 30_000
) -> Plan[list[TopicDone]]:
    """Each topic on its own: one may fail while another is made."""
    request = CreateTopicsRequest(topics=[_creatable(one) for one in topics], timeout_ms=timeout_ms)
    ask = Ask(CREATE_TOPICS, request, timeout_ns=ms(2 * timeout_ms))
    answer = yield from at_controller(view, ask, lambda message: message.topics)
    return [_created(one) for one in answer.topics]


def delete_topics(
    view: ClusterView, names: Sequence[str], *, timeout_ms: int = 30_000
) -> Plan[list[TopicDone]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=timeout_ms,
    )
    ask = Ask(DELETE_TOPICS, request, timeout_ns=ms(2 * timeout_ms))
    answer = yield from at_controller(view, ask, lambda message: message.responses)
    return [
        TopicDone(one.name or "", known_code(one.error_code), one.error_message or "")
        for one in answer.responses
    ]


def at_controller(
    view: ClusterView, ask: Ask, results: Callable[[Any], Sequence[Any]]
) -> Plan[Any]:
    """Any broker first; where it does not pass it on, whoever Metadata calls the controller."""
    to: Somewhere = Somewhere.ANY
    failures = 0
    while True:
        (outcome,) = yield [Call(to, ask)]
        message = response(outcome)
        if all(one.error_code != ErrorCode.NOT_CONTROLLER for one in results(message)):
            return message
        failures += 1
        yield Pause(BACKOFF.wait(failures), "no broker says that it is the controller")
        yield from refresh(view, ())
        to = Somewhere.CONTROLLER


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(topic.assignment)
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(result: CreatableTopicResult) -> TopicDone:
    return TopicDone(
        result.name,
        known_code(result.error_code),
        result.error_message or "",
        result.num_partitions,
        result.replication_factor,
    )


def wait_for_topics(view: ClusterView, names: Sequence[str]) -> Plan[None]:
    """Until a broker lists all of them with a leader for each partition."""
    waits = 0
    while True:
        yield from refresh(view, names)
        late = [name for name in names if not _is_led(view, name)]
        if not late:
            return
        waits += 1
        yield Pause(BACKOFF.wait(waits), f"topic {late[0]!r} has partitions without a leader")


def wait_without_topics(view: ClusterView, names: Sequence[str]) -> Plan[None]:
    """Until a broker lists none of them."""
    waits = 0
    while names:
        yield from refresh(view, names)
        if not any(name in view.topics for name in names):
            return
        waits += 1
        yield Pause(BACKOFF.wait(waits), f"topic {names[0]!r} is still listed")


def _is_led(view: ClusterView, name: str) -> bool:
    topic = view.topics.get(name)
    if topic is None or not topic.partitions:
        return False
    return all(view.leader((name, Partition(number))) is not None for number in topic.partitions)
