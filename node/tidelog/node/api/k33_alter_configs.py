"""AlterConfigs (key 33), versions 0-2. v2 flexible. What is not named is not set any more."""

from tidelog.node.api.altering import Altering
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.messages.k33_alter_configs import (
    API,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
)


def alter_configs(call: Call, request: AlterConfigsRequest) -> object | None:
    return Altering(call, request, AlterConfigsResourceResponse, loggers=False).answer()


ROUTE = Route(API, range(3), alter_configs, "topics and brokers; replaces all of a resource")
