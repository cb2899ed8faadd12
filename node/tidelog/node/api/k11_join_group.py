"""JoinGroup (key 11), versions 0-9. v4 ids come first, v5 static members, v9 skipped assignments.

The answer comes when the generation is complete: when every member has joined, or was given up.
"""

from typing import Any, Final

from tidelog.kernel.limits import MEMBER_ID_PREFIX_CHARS_MAX
from tidelog.kernel.texts import quoted
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, speaks_for
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import Joined, JoinGroup, JoinRefused, Who
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.messages.k11_join_group import (
    API,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_REBALANCE_TIMEOUT_VERSION: Final = 1
_ID_FIRST_VERSION: Final = 4
_NULL_PROTOCOL_VERSION: Final = 7
_SKIP_VERSION: Final = 9


def join_group(call: Call, request: JoinGroupRequest) -> None:
    speaks_for(call, request.group_id, request.member_id)
    client = call.header.client_id or ""
    session_ms = request.session_timeout_ms
    has_own = call.version >= _REBALANCE_TIMEOUT_VERSION
    ask = JoinGroup(
        group=request.group_id,
        who=Who(request.member_id, request.group_instance_id, -1),
        client_id=client,
        client_host=client_host(call),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_own else session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        needs_known_id=call.version >= _ID_FIRST_VERSION,
        may_skip_assignment=call.version >= _SKIP_VERSION,
        new_member_id=_new_member_id(request.group_instance_id or client, call.broker.new_uuid()),
        reason=request.reason or "",
    )
    ask_group(call, request.group_id, ask, lambda said: _answer(call, request, said))


def _new_member_id(name: str, unique: str) -> str:
    """The member's id is longer than the name it is made of, which may already be as long as a
    string of the protocol can be."""
    return f"{quoted(name, MEMBER_ID_PREFIX_CHARS_MAX)}-{unique}"


def client_host(call: Call) -> str:
    """As Kafka shows it."""
    return "/" + call.client.address.rpartition(":")[0]


def _answer(call: Call, request: JoinGroupRequest, said: Any | Refusal) -> JoinGroupResponse:  # noqa: ANN401 -- Joined, JoinRefused, or why not
    if isinstance(said, Joined):
        return JoinGroupResponse(
            error_code=0,
            generation_id=said.generation,
            protocol_type=said.protocol_type,
            protocol_name=said.protocol,
            leader=said.leader,
            skip_assignment=said.skip_assignment,
            member_id=said.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    metadata=one.subscription,
                )
                for one in said.members
            ],
        )
    assert isinstance(said, JoinRefused | Refusal)
    return JoinGroupResponse(
        error_code=said.code,
        protocol_name=None if call.version >= _NULL_PROTOCOL_VERSION else "",
        leader="",
        skip_assignment=False,
        member_id=said.member_id if isinstance(said, JoinRefused) else request.member_id,
    )


ROUTE = Route(API, range(10), join_group, "answered when the generation is complete")
