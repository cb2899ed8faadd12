"""ConsumerGroupDescribe (key 69), versions 0-1. v1 the type of a member."""

from typing import Any

from tidelog.node.api import operations
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_groups
from tidelog.node.api.registry import Route
from tidelog.node.groups.consumer_requests import DescribeConsumerGroup
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.messages.k69_consumer_group_describe import (
    API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def consumer_group_describe(call: Call, request: ConsumerGroupDescribeRequest) -> None:
    names = list(dict.fromkeys(request.group_ids))
    allowed = operations.ON_GROUP if request.include_authorized_operations else operations.NOT_ASKED

    def answer(said: list[Any | Refusal]) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[_group(name, one, allowed) for name, one in zip(names, said, strict=True)]
        )

    ask_groups(call, [(name, DescribeConsumerGroup(name)) for name in names], answer)


def _group(name: str, said: DescribedGroup | Refusal, allowed: int) -> DescribedGroup:
    if isinstance(said, Refusal):
        return DescribedGroup(
            group_id=name, error_code=said.code, error_message=said.detail or None
        )
    said.authorized_operations = allowed
    return said


ROUTE = Route(API, range(2), consumer_group_describe, "groups of the consumer protocol")
