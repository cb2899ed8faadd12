"""DescribeLogDirs (key 35), versions 1-5. v3 an error for the whole answer, v4 the volume's room,
v5 whether new partitions are kept off the directory: never.

Partitions that are led and that are followed here are told alike; those that are not here, or whose
files cannot be used, are left out. A directory that failed has nothing but its name and its error.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.api.broker import Volume
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, in_parts
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


def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> object | None:
    return in_parts(call, _described(call, request))


def _described(call: Call, request: DescribeLogDirsRequest) -> Parts:
    turn = Turn()
    asked = yield from _asked(call, request, turn)
    answer = DescribeLogDirsResponse()
    for volume in call.broker.storage.volumes():
        answer.results.append((yield from _directory(volume, asked, turn)))
    return answer


def _directory(
    volume: Volume, asked: Iterable[Replica], turn: Turn
) -> Parting[DescribeLogDirsResult]:
    try:
        space = volume.space()
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=volume.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in asked:
        if turn.is_over():
            yield None
        if not volume.holds(replica.key):
            continue
        topic = topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=replica.partition,
                partition_size=replica.log.size_bytes,
                offset_lag=_NO_LAG,
            )
        )
    return DescribeLogDirsResult(
        log_dir=volume.path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )


def _asked(call: Call, request: DescribeLogDirsRequest, turn: Turn) -> Parting[list[Replica]]:
    """The replicas here that the request names, each once; all where it names none."""
    replicas = call.broker.replicas
    if request.topics is None:
        return list(replicas)
    found: dict[TopicPartition, Replica] = {}
    for topic in request.topics:
        for index in topic.partitions:
            if turn.is_over():
                yield None
            key = (topic.topic, Partition(index))
            replica = replicas.get(key)
            if replica is not None:
                found[key] = replica
    return list(found.values())


ROUTE = Route(API, range(1, 6), describe_log_dirs, "every directory, its sizes and its volume")
