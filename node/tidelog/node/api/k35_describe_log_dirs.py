"""DescribeLogDirs (key 35), versions 1-5. v3 an error for the whole answer, v4 the volume's room,
v5 whether new partitions are kept off the directory: never.

There is one directory. Partitions that are led and that are followed here are told alike; those
that are not here, or whose files cannot be used, are left out.
"""

from typing import Final

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.api.broker import Space
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k35_describe_log_dirs import (
    API,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_NO_LAG: Final = 0
"""How far the log's end is behind the high watermark: never, that only a replaced log can be."""


def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    storage = call.broker.storage
    try:
        space = storage.space()
    except OSError:
        failed = DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=storage.path
        )
        return DescribeLogDirsResponse(results=[failed])
    return DescribeLogDirsResponse(results=[_directory(call, request, space)])


def _directory(call: Call, request: DescribeLogDirsRequest, space: Space) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in _asked(call, request):
        topic = topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=replica.partition,
                partition_size=replica.log.size_bytes,
                offset_lag=_NO_LAG,
            )
        )
    return DescribeLogDirsResult(
        log_dir=call.broker.storage.path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )


def _asked(call: Call, request: DescribeLogDirsRequest) -> list[Replica]:
    """The replicas here that the request names, each once; all where it names none."""
    replicas = call.broker.replicas
    if request.topics is None:
        return list(replicas)
    keys: dict[TopicPartition, None] = {
        (topic.topic, Partition(index)): None
        for topic in request.topics
        for index in topic.partitions
    }
    found = (replicas.get(key) for key in keys)
    return [replica for replica in found if replica is not None]


ROUTE = Route(API, range(1, 6), describe_log_dirs, "one directory, its sizes and its volume")
