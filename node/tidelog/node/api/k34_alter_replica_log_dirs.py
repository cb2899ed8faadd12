"""AlterReplicaLogDirs (key 34), versions 1-2. v2 flexible.

Not done: a replica stays in the directory it came to. A reassignment away and back lets it choose
anew. Where it is already the answer is good, as Kafka's; all else gets the error that says why not.
"""

from collections.abc import Iterable, Iterator

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.api.broker import Volume
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.replica.replicas import Replicas
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k34_alter_replica_log_dirs import (
    API,
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> object | None:
    return in_parts(call, _altered(call, request))


def _altered(call: Call, request: AlterReplicaLogDirsRequest) -> Parts:
    turn, replicas, volumes = Turn(), call.broker.replicas, call.broker.storage.volumes()
    looked_at: dict[str, _Wanted] = {}
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        if turn.is_over():
            yield None
        wanted = looked_at.get(directory.path)
        if wanted is None:
            wanted = looked_at[directory.path] = _Wanted(replicas, volumes, directory.path)
        for topic, index in _asked(directory):
            if turn.is_over():
                yield None
            code = wanted.code((topic, Partition(index)))
            answer = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
            answer.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _asked(directory: AlterReplicaLogDir) -> Iterator[tuple[str, int]]:
    for topic in directory.topics:
        yield from ((topic.name, index) for index in topic.partitions)


class _Wanted:
    """The directory that replicas shall be in; looked at once for all of them."""

    def __init__(self, replicas: Replicas, volumes: Iterable[Volume], path: str) -> None:
        self._replicas = replicas
        self._volume = next((one for one in volumes if one.path == path), None)
        self._works = self._volume is not None and _works(self._volume)

    def code(self, key: TopicPartition) -> ErrorCode:
        if self._volume is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not self._works:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._replicas.get(key) is None:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.NONE if self._volume.holds(key) else ErrorCode.INVALID_REQUEST


def _works(volume: Volume) -> bool:
    try:
        volume.space()
    except OSError:
        return False
    return True


ROUTE = Route(
    API, range(1, 3), alter_replica_log_dirs, "replicas do not move between directories: an error"
)
