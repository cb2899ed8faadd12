"""Heartbeat (key 12), versions 0-4. v3 static members, v4 flexible."""

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of, speaks_for
from tidelog.node.api.registry import Route
from tidelog.node.groups import requests as ask
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k12_heartbeat import API, HeartbeatRequest, HeartbeatResponse


def heartbeat(call: Call, request: HeartbeatRequest) -> None:
    speaks_for(call, request.group_id, request.member_id)
    who = ask.Who(request.member_id, request.group_instance_id, request.generation_id)
    ask_group(
        call,
        request.group_id,
        ask.Heartbeat(request.group_id, who),
        lambda said: HeartbeatResponse(error_code=_code(said)),
    )


def _code(said: object) -> ErrorCode:
    """While the group is loaded every member is taken to be well, as Kafka does: its session
    begins anew then, and there are clients (aiokafka) that give up on any other answer."""
    if isinstance(said, Refusal) and said.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.NONE
    return code_of(said)


ROUTE = Route(API, range(5), heartbeat, "of members of the classic protocol")
