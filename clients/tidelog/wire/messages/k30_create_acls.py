"""CreateAcls (key 30), versions 1-3, flexible from 2. v3 knows the resource type "user"."""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class AclCreation:
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    resource_pattern_type: int = row(INT8, default=3)
    principal: str = row(STRING)
    host: str = row(STRING)
    operation: int = row(INT8)
    permission_type: int = row(INT8)


@message
class CreateAclsRequest:
    creations: list[AclCreation] = row(array(AclCreation))


@message
class AclCreationResult:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")


@message
class CreateAclsResponse:
    throttle_time_ms: int = row(INT32)
    results: list[AclCreationResult] = row(array(AclCreationResult))


API = ApiSchema(
    key=30,
    name="CreateAcls",
    versions=range(1, 4),
    flexible_from=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
