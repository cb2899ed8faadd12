"""AlterConfigs (key 33), versions 0-2, flexible from 2.

Replaces the whole configuration of a resource; key 44 changes single entries.
"""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AlterableConfig:
    name: str = row(STRING)
    value: str | None = row(STRING, nullable="0+")


@message
class AlterConfigsResource:
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    configs: list[AlterableConfig] = row(array(AlterableConfig))


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = row(array(AlterConfigsResource))
    validate_only: bool = row(BOOL)


@message
class AlterConfigsResourceResponse:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)


@message
class AlterConfigsResponse:
    throttle_time_ms: int = row(INT32)
    responses: list[AlterConfigsResourceResponse] = row(array(AlterConfigsResourceResponse))


API = ApiSchema(
    key=33,
    name="AlterConfigs",
    versions=range(3),
    flexible_from=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
