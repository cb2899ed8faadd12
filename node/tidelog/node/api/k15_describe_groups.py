"""DescribeGroups (key 15), versions 0-6. v4 static members, v6 GROUP_ID_NOT_FOUND."""

from typing import Any, Final

from tidelog.node.api import operations
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_groups
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import DescribeGroup, GroupDescribed
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k15_describe_groups import (
    API,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_VERSION: Final = 6
_DEAD: Final = "Dead"


def describe_groups(call: Call, request: DescribeGroupsRequest) -> object | None:
    allowed = operations.ON_GROUP if request.include_authorized_operations else operations.NOT_ASKED
    return ask_groups(
        call,
        request.groups,
        DescribeGroup,
        lambda name, said: _row(call, name, said, allowed),
        lambda rows: DescribeGroupsResponse(groups=rows),
    )


def _row(call: Call, name: str, said: Any | Refusal, allowed: int) -> DescribedGroup:  # noqa: ANN401 -- GroupDescribed, or why not
    if isinstance(said, Refusal):
        code, state = said.code, ""
        if code is ErrorCode.GROUP_ID_NOT_FOUND:
            state = _DEAD
            if call.version < _NOT_FOUND_VERSION:
                code = ErrorCode.NONE
        return DescribedGroup(
            error_code=code,
            error_message=said.detail or None,
            group_id=name,
            group_state=state,
            protocol_type="",
            protocol_data="",
            authorized_operations=operations.NOT_ASKED if code else allowed,
        )
    assert isinstance(said, GroupDescribed)
    return DescribedGroup(
        error_code=0,
        group_id=name,
        group_state=said.state,
        protocol_type=said.protocol_type,
        protocol_data=said.protocol,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.subscription,
                member_assignment=one.assignment,
            )
            for one in said.members
        ],
        authorized_operations=allowed,
    )


ROUTE = Route(API, range(7), describe_groups, "classic groups")
