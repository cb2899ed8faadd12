"""Have other leaders elected, at the controller. Nothing is asked for twice: whoever does not hear
the answer may look who leads."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.clients.admin.topics import at_controller
from tidelog.clients.asking import Ask, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.kernel.ids import Partition, TopicPartition, by_topic
from tidelog.kernel.instant import ms
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k43_elect_leaders import API as ELECT_LEADERS
from tidelog.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

_PREFERRED, _UNCLEAN = 0, 1


@dataclass(frozen=True, slots=True)
class Election:
    """What became of one partition; `code` is NONE where it has another leader now."""

    partition: TopicPartition
    code: ErrorCode
    detail: str


def elect_leaders(
    view: ClusterView,
    wanted: Iterable[TopicPartition] | None,
    *,
    unclean: bool = False,
    timeout_ms: int = 30_000,
) -> Plan[list[Election]]:
    """The preferred replicas, or where `unclean` any that is there, whatever it lacks. Without
    `wanted` all partitions that need it."""
    named: list[TopicPartitions] | None = None
    if wanted is not None:
        topics = by_topic(wanted)
        named = [TopicPartitions(topic=name, partitions=rows) for name, rows in topics.items()]
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=named,
        timeout_ms=timeout_ms,
    )
    ask = Ask(ELECT_LEADERS, request, timeout_ns=ms(2 * timeout_ms))
    answer: ElectLeadersResponse = yield from at_controller(view, ask, lambda message: [message])
    code = known_code(answer.error_code)
    if code is not ErrorCode.NONE:
        raise Rejected(code, "the election was refused")
    return [
        Election(
            (one.topic, Partition(row.partition_id)),
            known_code(row.error_code),
            row.error_message or "",
        )
        for one in answer.replica_election_results
        for row in one.partition_result
    ]
