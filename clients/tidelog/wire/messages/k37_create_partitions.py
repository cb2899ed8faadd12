"""CreatePartitions (key 37), versions 0-3, flexible from 2.

The count is the new total. Assignments, where given, are of the new partitions only.
"""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = row(array(INT32))


@message
class CreatePartitionsTopic:
    name: str = row(STRING)
    count: int = row(INT32)
    assignments: list[CreatePartitionsAssignment] | None = row(
        array(CreatePartitionsAssignment), nullable="0+"
    )


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = row(array(CreatePartitionsTopic))
    timeout_ms: int = row(INT32)
    validate_only: bool = row(BOOL)


@message
class CreatePartitionsTopicResult:
    name: str = row(STRING)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+", default=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = row(INT32)
    results: list[CreatePartitionsTopicResult] = row(array(CreatePartitionsTopicResult))


API = ApiSchema(
    key=37,
    name="CreatePartitions",
    versions=range(4),
    flexible_from=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
