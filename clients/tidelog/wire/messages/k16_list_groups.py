"""ListGroups (key 16), versions 0-5, flexible from 3.

v4 filters by state, v5 by type.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ListGroupsRequest:
    states_filter: list[str] = row(array(STRING), "4+")
    types_filter: list[str] = row(array(STRING), "5+")


@message
class ListedGroup:
    group_id: str = row(STRING)
    protocol_type: str = row(STRING)
    group_state: str = row(STRING, "4+")
    group_type: str = row(STRING, "5+")


@message
class ListGroupsResponse:
    throttle_time_ms: int = row(INT32, "1+")
    error_code: int = row(INT16)
    groups: list[ListedGroup] = row(array(ListedGroup))


API = ApiSchema(
    key=16,
    name="ListGroups",
    versions=range(6),
    flexible_from=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
