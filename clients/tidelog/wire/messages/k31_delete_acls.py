"""DeleteAcls (key 31), versions 1-3, flexible from 2. v3 knows the resource type "user"."""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DeleteAclsFilter:
    resource_type_filter: int = row(INT8)
    resource_name_filter: str | None = row(STRING, nullable="0+")
    pattern_type_filter: int = row(INT8, default=3)
    principal_filter: str | None = row(STRING, nullable="0+")
    host_filter: str | None = row(STRING, nullable="0+")
    operation: int = row(INT8)
    permission_type: int = row(INT8)


@message
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = row(array(DeleteAclsFilter))


@message
class DeleteAclsMatchingAcl:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    resource_type: int = row(INT8)
    resource_name: str = row(STRING)
    pattern_type: int = row(INT8, default=3)
    principal: str = row(STRING)
    host: str = row(STRING)
    operation: int = row(INT8)
    permission_type: int = row(INT8)


@message
class DeleteAclsFilterResult:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = row(array(DeleteAclsMatchingAcl))


@message
class DeleteAclsResponse:
    throttle_time_ms: int = row(INT32)
    filter_results: list[DeleteAclsFilterResult] = row(array(DeleteAclsFilterResult))


API = ApiSchema(
    key=31,
    name="DeleteAcls",
    versions=range(1, 4),
    flexible_from=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
