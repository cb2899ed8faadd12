"""DeleteGroups (key 42), versions 0-2, flexible from 2."""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DeleteGroupsRequest:
    groups_names: list[str] = row(array(STRING))


@message
class DeletableGroupResult:
    group_id: str = row(STRING)
    error_code: int = row(INT16)


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = row(INT32)
    results: list[DeletableGroupResult] = row(array(DeletableGroupResult))


API = ApiSchema(
    key=42,
    name="DeleteGroups",
    versions=range(3),
    flexible_from=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
