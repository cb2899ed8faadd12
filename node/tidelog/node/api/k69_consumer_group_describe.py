"""ConsumerGroupDescribe (key 69), versions 0-1. v1 the type of a member."""

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


def consumer_group_describe(call: Call, request: ConsumerGroupDescribeRequest) -> object | None:
    allowed = operations.ON_GROUP if request.include_authorized_operations else operations.NOT_ASKED
    return ask_groups(
        call,
        request.group_ids,
        DescribeConsumerGroup,
        lambda name, said: _group(name, said, allowed),
        lambda rows: ConsumerGroupDescribeResponse(groups=rows),
    )


def _group(name: str, said: DescribedGroup | Refusal, allowed: int) -> DescribedGroup:
    if isinstance(said, Refusal):
        return DescribedGroup(
            group_id=name, error_code=said.code, error_message=said.detail or None
        )
    said.authorized_operations = allowed
    return said


ROUTE = Route(API, range(2), consumer_group_describe, "groups of the consumer protocol")
