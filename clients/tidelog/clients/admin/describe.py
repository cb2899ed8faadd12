"""What a description of a topic needs beyond Metadata: eligible replicas, and bytes on disk.

Both come from APIs that an older or smaller cluster does not offer; then they are simply not known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.clients.asking import Answered, Ask, Call, Plan, Somewhere
from tidelog.clients.cluster_view import ClusterView
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.limits import PARTITIONS_IN_CLUSTER_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k35_describe_log_dirs import API as DESCRIBE_LOG_DIRS
from tidelog.wire.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog.wire.messages.k75_describe_topic_partitions import API as DESCRIBE_TOPIC_PARTITIONS
from tidelog.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)


def eligible_replicas(topics: Iterable[str]) -> Plan[dict[TopicPartition, tuple[int, ...]]]:
    """Per partition, who may lead it although not in sync; a partition not named is not known."""
    asked = [TopicRequest(name=name) for name in sorted(topics)]
    found: dict[TopicPartition, tuple[int, ...]] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=asked, cursor=cursor)
        (outcome,) = yield [Call(Somewhere.ANY, Ask(DESCRIBE_TOPIC_PARTITIONS, request))]
        if not isinstance(outcome, Answered):
            return found
        page: DescribeTopicPartitionsResponse = outcome.message
        before = len(found)
        found.update(_eligible(page))
        cursor = page.next_cursor
        # A page that brings nothing new would bring it for ever.
        if cursor is None or len(found) == before:
            return found
        assert len(found) <= PARTITIONS_IN_CLUSTER_MAX


def _eligible(
    page: DescribeTopicPartitionsResponse,
) -> Iterator[tuple[TopicPartition, tuple[int, ...]]]:
    for topic in page.topics:
        for one in topic.partitions:
            if one.eligible_leader_replicas is not None:
                partition = (topic.name or "", Partition(one.partition_index))
                yield partition, tuple(one.eligible_leader_replicas)


def replica_sizes(
    view: ClusterView, partitions: Sequence[TopicPartition]
) -> Plan[dict[tuple[TopicPartition, int], int]]:
    """Bytes on disk by partition and broker; of a broker that does not tell, nothing."""
    hosted: dict[int, dict[str, list[int]]] = {}
    for topic, number in partitions:
        for broker in view.topics[topic].partitions[number].replicas:
            if broker in view.brokers:
                hosted.setdefault(broker, {}).setdefault(topic, []).append(number)
    if not hosted:
        return {}
    outcomes = yield [Call(broker, _ask_sizes(topics)) for broker, topics in hosted.items()]
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker, outcome in zip(hosted, outcomes, strict=True):
        if isinstance(outcome, Answered):
            sizes.update(_sizes(broker, outcome.message))
    return sizes


def failed_directories(brokers: Iterable[int]) -> Plan[dict[int, tuple[str, ...]]]:
    """The log directories that each broker says it cannot use; nothing of one that is silent."""
    asked = list(brokers)
    if not asked:
        return {}
    outcomes = yield [Call(broker, _ask_sizes({})) for broker in asked]
    told = {
        broker: outcome.message.results
        for broker, outcome in zip(asked, outcomes, strict=True)
        if isinstance(outcome, Answered)
    }
    failed = {
        broker: tuple(one.log_dir for one in rows if one.error_code != ErrorCode.NONE)
        for broker, rows in told.items()
    }
    return {broker: directories for broker, directories in failed.items() if directories}


def _ask_sizes(topics: Mapping[str, list[int]]) -> Ask:
    rows = [DescribableLogDirTopic(topic=name, partitions=ids) for name, ids in topics.items()]
    return Ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=rows))


def _sizes(
    broker: int, message: DescribeLogDirsResponse
) -> Iterable[tuple[tuple[TopicPartition, int], int]]:
    """The logs in use; one that is being moved to another directory would count twice."""
    return [
        (((topic.name, Partition(one.partition_index)), broker), one.partition_size)
        for directory in message.results
        if directory.error_code == ErrorCode.NONE
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    ]
