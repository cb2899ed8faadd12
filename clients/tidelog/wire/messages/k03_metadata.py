"""Metadata (key 3), versions 0-13, flexible from 9.

A topic list of null asks for all topics, an empty one for none. v4 auto creation, v5 offline
replicas, v7 leader epochs, v8-10 cluster operations, v10 topic ids, v12 topics may be asked by id,
v13 an error code for the whole answer.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import BOOL, INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class MetadataRequestTopic:
    topic_id: Uuid = row(UUID, "10+")
    name: str | None = row(STRING, nullable="10+")


@message
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = row(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = row(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = row(BOOL, "8-10")
    include_topic_authorized_operations: bool = row(BOOL, "8+")


@message
class MetadataResponseBroker:
    node_id: int = row(INT32)
    host: str = row(STRING)
    port: int = row(INT32)
    rack: str | None = row(STRING, "1+", nullable="1+", default=None)


@message
class MetadataResponsePartition:
    error_code: int = row(INT16)
    partition_index: int = row(INT32)
    leader_id: int = row(INT32)
    leader_epoch: int = row(INT32, "7+", default=-1)
    replica_nodes: list[int] = row(array(INT32))
    isr_nodes: list[int] = row(array(INT32))
    offline_replicas: list[int] = row(array(INT32), "5+")


@message
class MetadataResponseTopic:
    error_code: int = row(INT16)
    name: str | None = row(STRING, nullable="12+")
    topic_id: Uuid = row(UUID, "10+")
    is_internal: bool = row(BOOL, "1+")
    partitions: list[MetadataResponsePartition] = row(array(MetadataResponsePartition))
    topic_authorized_operations: int = row(INT32, "8+", default=-2147483648)


@message
class MetadataResponse:
    throttle_time_ms: int = row(INT32, "3+")
    brokers: list[MetadataResponseBroker] = row(array(MetadataResponseBroker))
    cluster_id: str | None = row(STRING, "2+", nullable="2+", default=None)
    controller_id: int = row(INT32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = row(array(MetadataResponseTopic, encoded=True))
    cluster_authorized_operations: int = row(INT32, "8-10", default=-2147483648)
    error_code: int = row(INT16, "13+")


API = ApiSchema(
    key=3,
    name="Metadata",
    versions=range(14),
    flexible_from=9,
    request=MetadataRequest,
    response=MetadataResponse,
)
