"""DescribeLogDirs (key 35), versions 1-5, flexible from 2.

A null list asks for all topics. v3 an error for the whole answer, v4 sizes of the volume.
"""

from tidelog.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DescribableLogDirTopic:
    topic: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = row(array(DescribableLogDirTopic), nullable="0+")


@message
class DescribeLogDirsPartition:
    partition_index: int = row(INT32)
    partition_size: int = row(INT64)
    offset_lag: int = row(INT64)
    is_future_key: bool = row(BOOL)


@message
class DescribeLogDirsTopic:
    name: str = row(STRING)
    partitions: list[DescribeLogDirsPartition] = row(array(DescribeLogDirsPartition))


@message
class DescribeLogDirsResult:
    error_code: int = row(INT16)
    log_dir: str = row(STRING)
    topics: list[DescribeLogDirsTopic] = row(array(DescribeLogDirsTopic))
    total_bytes: int = row(INT64, "4+", default=-1)
    usable_bytes: int = row(INT64, "4+", default=-1)
    is_cordoned: bool = row(BOOL, "5+")


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16, "3+")
    results: list[DescribeLogDirsResult] = row(array(DescribeLogDirsResult))


API = ApiSchema(
    key=35,
    name="DescribeLogDirs",
    versions=range(1, 6),
    flexible_from=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
