"""IncrementalAlterConfigs (key 44), versions 0-1. v1 flexible. Set, delete, append, subtract."""

from tidelog.node.api.altering import Altering
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.messages.k44_incremental_alter_configs import (
    API,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)


def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> object | None:
    return Altering(call, request, AlterConfigsResourceResponse, loggers=True).answer()


ROUTE = Route(API, range(2), incremental_alter_configs, "topics and brokers; entry by entry")
