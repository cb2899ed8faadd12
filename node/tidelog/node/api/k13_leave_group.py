"""LeaveGroup (key 13), versions 0-5. v3 many members at once, v4 flexible, v5 the reason."""

from typing import Any, Final

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of
from tidelog.node.api.registry import Route
from tidelog.node.groups import requests as ask
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k13_leave_group import (
    API,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

_MANY_VERSION: Final = 3


def leave_group(call: Call, request: LeaveGroupRequest) -> None:
    if call.version >= _MANY_VERSION:
        members = tuple(
            ask.LeavingMember(one.member_id, one.group_instance_id, one.reason or "")
            for one in request.members
        )
    else:
        members = (ask.LeavingMember(request.member_id, None),)

    def answer(said: Any | Refusal) -> LeaveGroupResponse:  # noqa: ANN401 -- codes, or why not
        code = code_of(said)
        codes: tuple[ErrorCode, ...] = () if isinstance(said, Refusal) else said
        if call.version < _MANY_VERSION:
            return LeaveGroupResponse(error_code=code or codes[0])
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            # There is no such group: each member is told, as of a group that does not know it.
            code, codes = ErrorCode.NONE, (code,) * len(members)
        return LeaveGroupResponse(
            error_code=code,
            members=[
                MemberResponse(
                    member_id=one.member_id, group_instance_id=one.instance_id, error_code=each
                )
                for one, each in zip(members, codes, strict=False)
            ],
        )

    ask_group(call, request.group_id, ask.LeaveGroup(request.group_id, members), answer)


ROUTE = Route(API, range(6), leave_group, "one member, from v3 many, static ones by instance id")
