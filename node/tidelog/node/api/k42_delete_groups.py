"""DeleteGroups (key 42), versions 0-2. v2 flexible."""

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_groups, code_of
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import DeleteGroup
from tidelog.wire.messages.k42_delete_groups import (
    API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def delete_groups(call: Call, request: DeleteGroupsRequest) -> object | None:
    return ask_groups(
        call,
        request.groups_names,
        DeleteGroup,
        lambda name, said: DeletableGroupResult(group_id=name, error_code=code_of(said)),
        lambda rows: DeleteGroupsResponse(results=rows),
    )


ROUTE = Route(API, range(3), delete_groups, "groups without members, and what they committed")
