"""CreateTopics (key 19), versions 2-7, flexible from 5.

v4 lets the broker choose partitions and replicas (-1). v5 returns what was made; config_error_code
is 0 or says why the configuration is left out. v6 throttles, v7 topic ids.
"""

from tidelog.kernel.ids import Uuid
from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class CreatableReplicaAssignment:
    partition_index: int = row(INT32)
    broker_ids: list[int] = row(array(INT32))


@message
class CreatableTopicConfig:
    name: str = row(STRING)
    value: str | None = row(STRING, nullable="0+")


@message
class CreatableTopic:
    name: str = row(STRING)
    num_partitions: int = row(INT32)
    replication_factor: int = row(INT16)
    assignments: list[CreatableReplicaAssignment] = row(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = row(array(CreatableTopicConfig))


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic] = row(array(CreatableTopic))
    timeout_ms: int = row(INT32, default=60000)
    validate_only: bool = row(BOOL)


@message
class CreatableTopicConfigs:
    name: str = row(STRING, "5+")
    value: str | None = row(STRING, "5+", nullable="5+")
    read_only: bool = row(BOOL, "5+")
    config_source: int = row(INT8, "5+", default=-1)
    is_sensitive: bool = row(BOOL, "5+")


@message
class CreatableTopicResult:
    name: str = row(STRING)
    topic_id: Uuid = row(UUID, "7+")
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    topic_config_error_code: int = row(INT16, "5+", tag=0)
    num_partitions: int = row(INT32, "5+", default=-1)
    replication_factor: int = row(INT16, "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = row(
        array(CreatableTopicConfigs), "5+", nullable="5+"
    )


@message
class CreateTopicsResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[CreatableTopicResult] = row(array(CreatableTopicResult))


API = ApiSchema(
    key=19,
    name="CreateTopics",
    versions=range(2, 8),
    flexible_from=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
