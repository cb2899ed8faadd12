"""IncrementalAlterConfigs (key 44), versions 0-1, flexible from 1.

Operations: 0 set, 1 delete, 2 append, 3 subtract.
"""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AlterableConfig:
    name: str = row(STRING)
    config_operation: int = row(INT8)
    value: str | None = row(STRING, nullable="0+")


@message
class AlterConfigsResource:
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    configs: list[AlterableConfig] = row(array(AlterableConfig))


@message
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = row(array(AlterConfigsResource))
    validate_only: bool = row(BOOL)


@message
class AlterConfigsResourceResponse:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = row(INT32)
    responses: list[AlterConfigsResourceResponse] = row(array(AlterConfigsResourceResponse))


API = ApiSchema(
    key=44,
    name="IncrementalAlterConfigs",
    versions=range(2),
    flexible_from=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
