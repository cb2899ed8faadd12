"""DescribeCluster (key 60), versions 0-2, all flexible.

v1 asks for brokers or controllers (endpoint type 1, 2), v2 for fenced brokers too.
"""

from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = row(BOOL)
    endpoint_type: int = row(INT8, "1+", default=1)
    include_fenced_brokers: bool = row(BOOL, "2+")


@message
class DescribeClusterBroker:
    broker_id: int = row(INT32)
    host: str = row(STRING)
    port: int = row(INT32)
    rack: str | None = row(STRING, nullable="0+", default=None)
    is_fenced: bool = row(BOOL, "2+")


@message
class DescribeClusterResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+", default=None)
    endpoint_type: int = row(INT8, "1+", default=1)
    cluster_id: str = row(STRING)
    controller_id: int = row(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = row(array(DescribeClusterBroker))
    cluster_authorized_operations: int = row(INT32, default=-2147483648)


API = ApiSchema(
    key=60,
    name="DescribeCluster",
    versions=range(3),
    flexible_from=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
