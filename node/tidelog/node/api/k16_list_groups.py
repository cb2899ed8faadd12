"""ListGroups (key 16), versions 0-5. v3 flexible, v4 by state, v5 by type.

Each broker names the groups that it coordinates: clients ask all of them.
"""

from typing import Any

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.groups import requests as ask
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.messages.k16_list_groups import (
    API,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def list_groups(call: Call, request: ListGroupsRequest) -> None:
    def done(answers: list[Any]) -> None:
        if not call.abandoned:
            call.answer(_answer(request, answers))

    call.broker.groups.ask_each(call.now, ask.ListGroups(), call.later(done))


def _answer(request: ListGroupsRequest, answers: list[Any]) -> ListGroupsResponse:
    refused = next((one for one in answers if isinstance(one, Refusal)), None)
    if refused is not None:
        return ListGroupsResponse(error_code=refused.code)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    rows = [
        ListedGroup(
            group_id=one.group,
            protocol_type=one.protocol_type,
            group_state=one.state,
            group_type=one.kind,
        )
        for found in answers
        for one in found
        if _fits(one.state, states) and _fits(one.kind, types)
    ]
    return ListGroupsResponse(error_code=0, groups=rows)


def _fits(word: str, wanted: set[str]) -> bool:
    """None wanted is all wanted."""
    return not wanted or word.lower() in wanted


ROUTE = Route(API, range(6), list_groups, "the groups that this broker coordinates")
