"""SyncGroup (key 14), versions 0-5. v3 static members, v5 the protocol's type and name.

The answer comes when the leader has brought the assignments, and the replicas have them.
"""

from typing import Any, Final

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, speaks_for
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import Synced, SyncGroup, Who
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k14_sync_group import API, SyncGroupRequest, SyncGroupResponse

_PROTOCOL_VERSION: Final = 5


def sync_group(call: Call, request: SyncGroupRequest) -> SyncGroupResponse | None:
    if call.version >= _PROTOCOL_VERSION and None in {
        request.protocol_type,
        request.protocol_name,
    }:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    speaks_for(call, request.group_id, request.member_id)
    ask = SyncGroup(
        group=request.group_id,
        who=Who(request.member_id, request.group_instance_id, request.generation_id),
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
    )
    ask_group(call, request.group_id, ask, _answer)
    return None


def _answer(said: Any | Refusal) -> SyncGroupResponse:  # noqa: ANN401 -- Synced, or why not
    if isinstance(said, Refusal):
        return SyncGroupResponse(error_code=said.code, assignment=b"")
    assert isinstance(said, Synced)
    return SyncGroupResponse(
        error_code=0,
        protocol_type=said.protocol_type,
        protocol_name=said.protocol,
        assignment=said.assignment,
    )


ROUTE = Route(API, range(6), sync_group, "answered when the leader's assignment is replicated")
