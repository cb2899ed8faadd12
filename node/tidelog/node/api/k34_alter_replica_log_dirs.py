"""AlterReplicaLogDirs (key 34), versions 1-2. v2 flexible.

Not done: a replica stays in the directory it came to. A reassignment away and back lets it choose
anew. Where it is already the answer is good, as Kafka's; all else gets the error that says why not.
"""

from collections.abc import Iterable

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.api.broker import Volume
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k34_alter_replica_log_dirs import (
    API,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def alter_replica_log_dirs(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    volumes = call.broker.storage.volumes()
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for path, key in _asked(request):
        topic, partition = key
        answer = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        code = _code(call, volumes, path, key)
        answer.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _asked(request: AlterReplicaLogDirsRequest) -> list[tuple[str, TopicPartition]]:
    return [
        (directory.path, (topic.name, Partition(index)))
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    ]


def _code(call: Call, volumes: Iterable[Volume], path: str, key: TopicPartition) -> ErrorCode:
    wanted = next((one for one in volumes if one.path == path), None)
    if wanted is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        wanted.space()
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if call.broker.replicas.get(key) is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE if wanted.holds(key) else ErrorCode.INVALID_REQUEST


ROUTE = Route(
    API, range(1, 3), alter_replica_log_dirs, "replicas do not move between directories: an error"
)
