"""Heartbeat (key 12), versions 0-4. v3 static members, v4 flexible."""

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of, speaks_for
from tidelog.node.api.registry import Route
from tidelog.node.groups import requests as ask
from tidelog.wire.messages.k12_heartbeat import API, HeartbeatRequest, HeartbeatResponse


def heartbeat(call: Call, request: HeartbeatRequest) -> None:
    speaks_for(call, request.group_id, request.member_id)
    who = ask.Who(request.member_id, request.group_instance_id, request.generation_id)
    ask_group(
        call,
        request.group_id,
        ask.Heartbeat(request.group_id, who),
        lambda said: HeartbeatResponse(error_code=code_of(said)),
    )


ROUTE = Route(API, range(5), heartbeat, "of members of classic groups")
