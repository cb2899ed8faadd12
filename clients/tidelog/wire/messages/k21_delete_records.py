"""DeleteRecords (key 21), versions 0-2, flexible from 2.

Offset -1 is the high watermark.
"""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DeleteRecordsPartition:
    partition_index: int = row(INT32)
    offset: int = row(INT64)


@message
class DeleteRecordsTopic:
    name: str = row(STRING)
    partitions: list[DeleteRecordsPartition] = row(array(DeleteRecordsPartition))


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = row(array(DeleteRecordsTopic))
    timeout_ms: int = row(INT32)


@message
class DeleteRecordsPartitionResult:
    partition_index: int = row(INT32)
    low_watermark: int = row(INT64)
    error_code: int = row(INT16)


@message
class DeleteRecordsTopicResult:
    name: str = row(STRING)
    partitions: list[DeleteRecordsPartitionResult] = row(array(DeleteRecordsPartitionResult))


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[DeleteRecordsTopicResult] = row(array(DeleteRecordsTopicResult))


API = ApiSchema(
    key=21,
    name="DeleteRecords",
    versions=range(3),
    flexible_from=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
