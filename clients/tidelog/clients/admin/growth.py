"""Give topics more partitions. As with creation, nothing that may have worked is sent twice."""

from collections.abc import Mapping, Sequence

from tidelog.clients.admin.topics import TopicDone, at_controller, wait_for_topics
from tidelog.clients.asking import Ask, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.instant import ms
from tidelog.wire.messages.k37_create_partitions import API as CREATE_PARTITIONS
from tidelog.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def create_partitions(
    view: ClusterView,
    totals: Mapping[str, int],
    *,
    assignment: Sequence[Sequence[int]] = (),
    timeout_ms: int = 30_000,
) -> Plan[list[TopicDone]]:
    """Each topic on its own; a total is how many partitions it shall have. `assignment` names the
    replicas of each new partition."""
    placed = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignment]
    topics = [
        CreatePartitionsTopic(name=name, count=count, assignments=placed or None)
        for name, count in totals.items()
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms)
    ask = Ask(CREATE_PARTITIONS, request, timeout_ns=ms(2 * timeout_ms))
    answer = yield from at_controller(view, ask, lambda message: message.results)
    return [
        TopicDone(one.name, known_code(one.error_code), one.error_message or "", totals[one.name])
        for one in answer.results
    ]


def wait_for_partitions(view: ClusterView, totals: Mapping[str, int]) -> Plan[None]:
    """Until a broker lists all of them, each with a leader."""
    waits = 0
    while True:
        yield from wait_for_topics(view, list(totals))
        late = [name for name, count in totals.items() if view.partition_count(name) < count]
        if not late:
            return
        waits += 1
        yield Pause(BACKOFF.wait(waits), f"topic {late[0]!r} has not all its partitions yet")
