"""ListConfigResources (key 74), versions 0-1. v0 clients' metrics only, v1 any types.

Of groups and clients' metrics those are resources that have settings, as with Kafka.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.api.resources import Resource
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k74_list_config_resources import (
    API,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog.wire.metadata_records import ResourceKind

_FIRST_WITH_TYPES: Final = 1


def _brokers(image: MetadataImage) -> list[str]:
    return [str(broker) for broker in image.alive()]


def _with_settings(kind: ResourceKind) -> Callable[[MetadataImage], list[str]]:
    return lambda image: sorted(image.configs_of(kind))


_NAMES: Final[Mapping[int, Callable[[MetadataImage], list[str]]]] = {
    Resource.TOPIC: lambda image: sorted(image.names),
    Resource.BROKER: _brokers,
    Resource.BROKER_LOGGER: _brokers,
    Resource.CLIENT_METRICS: _with_settings(ResourceKind.CLIENT_METRICS),
    Resource.GROUP: _with_settings(ResourceKind.GROUP),
}


def list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    asked = dict.fromkeys(request.resource_types) or dict.fromkeys(_NAMES)
    if call.version < _FIRST_WITH_TYPES:
        asked = {Resource.CLIENT_METRICS: None}
    if not asked.keys() <= _NAMES.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in asked
            for name in _NAMES[kind](call.broker.image)
        ]
    )


ROUTE = Route(API, range(2), list_config_resources, "topics, brokers, groups, clients' metrics")
