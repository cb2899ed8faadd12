"""ConsumerGroupHeartbeat (key 68), versions 0-1. v1 expressions, and the member makes its id."""

from typing import Any

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group
from tidelog.node.api.k11_join_group import client_host
from tidelog.node.api.registry import Route
from tidelog.node.groups.consumer_member import Holdings
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.messages.k68_consumer_group_heartbeat import (
    API,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def consumer_group_heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> None:
    def answer(said: Any | Refusal) -> ConsumerGroupHeartbeatResponse:  # noqa: ANN401 -- HeartbeatAnswer, or why not
        if isinstance(said, Refusal):
            return ConsumerGroupHeartbeatResponse(
                error_code=said.code, error_message=said.detail or None
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=said.member_id,
            member_epoch=said.epoch,
            heartbeat_interval_ms=said.interval_ms,
            assignment=None if said.assigned is None else _assignment(said.assigned),
        )

    names = request.subscribed_topic_names
    owned = request.topic_partitions
    ask = ConsumerHeartbeat(
        group=request.group_id,
        member_id=_member_id(call, request),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else tuple((one.topic_id, index) for one in owned for index in one.partitions),
        client_id=call.header.client_id or "",
        client_host=client_host(call),
    )
    ask_group(call, request.group_id, ask, answer)


def _member_id(call: Call, request: ConsumerGroupHeartbeatRequest) -> str:
    """In version 0 who joins is given one."""
    if call.version == 0 and request.member_epoch == 0 and not request.member_id:
        return str(call.broker.new_uuid())
    return request.member_id


def _assignment(assigned: Holdings) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=list(partitions))
            for topic, partitions in assigned.items()
        ]
    )


ROUTE = Route(
    API, range(2), consumer_group_heartbeat, "the consumer protocol; classic groups go over to it"
)
