"""AlterReplicaLogDirs (key 34), versions 1-2, flexible from 2."""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AlterReplicaLogDirTopic:
    name: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class AlterReplicaLogDir:
    path: str = row(STRING)
    topics: list[AlterReplicaLogDirTopic] = row(array(AlterReplicaLogDirTopic))


@message
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = row(array(AlterReplicaLogDir))


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str = row(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = row(
        array(AlterReplicaLogDirPartitionResult)
    )


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = row(INT32)
    results: list[AlterReplicaLogDirTopicResult] = row(array(AlterReplicaLogDirTopicResult))


API = ApiSchema(
    key=34,
    name="AlterReplicaLogDirs",
    versions=range(1, 3),
    flexible_from=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
