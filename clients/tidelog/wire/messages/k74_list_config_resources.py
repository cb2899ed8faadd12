"""ListConfigResources (key 74), versions 0-1, all flexible."""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ListConfigResourcesRequest:
    resource_types: list[int] = row(array(INT8), "1+")


@message
class ConfigResource:
    resource_name: str = row(STRING)
    resource_type: int = row(INT8, "1+", default=16)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    config_resources: list[ConfigResource] = row(array(ConfigResource))


API = ApiSchema(
    key=74,
    name="ListConfigResources",
    versions=range(2),
    flexible_from=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
