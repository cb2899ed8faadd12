"""DescribeConfigs (key 32), versions 1-4, flexible from 4.

A null list of keys asks for all of a resource. v1 synonyms, v3 types and documentation.
"""

from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DescribeConfigsResource:
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    configuration_keys: list[str] | None = row(array(STRING), nullable="0+")


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = row(array(DescribeConfigsResource))
    include_synonyms: bool = row(BOOL)
    include_documentation: bool = row(BOOL, "3+")


@message
class DescribeConfigsSynonym:
    name: str = row(STRING)
    value: str | None = row(STRING, nullable="0+")
    source: int = row(INT8)


@message
class DescribeConfigsResourceResult:
    name: str = row(STRING)
    value: str | None = row(STRING, nullable="0+")
    read_only: bool = row(BOOL)
    config_source: int = row(INT8, default=-1)
    is_sensitive: bool = row(BOOL)
    synonyms: list[DescribeConfigsSynonym] = row(array(DescribeConfigsSynonym))
    config_type: int = row(INT8, "3+")
    documentation: str | None = row(STRING, "3+", nullable="3+")


@message
class DescribeConfigsResult:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    configs: list[DescribeConfigsResourceResult] = row(array(DescribeConfigsResourceResult))


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = row(INT32)
    results: list[DescribeConfigsResult] = row(array(DescribeConfigsResult))


API = ApiSchema(
    key=32,
    name="DescribeConfigs",
    versions=range(1, 5),
    flexible_from=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
