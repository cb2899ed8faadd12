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


def delete_groups(call: Call, request: DeleteGroupsRequest) -> None:
    names = list(dict.fromkeys(request.groups_names))
    ask_groups(
        call,
        [(name, DeleteGroup(name)) for name in names],
        lambda said: DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=code_of(one))
                for name, one in zip(names, said, strict=True)
            ]
        ),
    )


ROUTE = Route(API, range(3), delete_groups, "groups without members, and what they committed")
