"""ApiVersions (key 18), versions 0-4. v3 flexible with the client's name, v4 features from 0.

A version we do not know is answered in the form of version 0 with error 35 (the dispatcher does).
"""

from typing import Final

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Registry, Route
from tidelog.node.metadata.features import SUPPORTED
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k18_api_versions import (
    API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_NAMED_VERSION: Final = 3
_FEATURES_FROM_ZERO_VERSION: Final = 4
_ALPHANUMERIC: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_INNER: Final = _ALPHANUMERIC | frozenset("-.")


def api_versions(registry: Registry, call: Call, request: ApiVersionsRequest) -> object:
    if call.version >= _NAMED_VERSION and not (
        _well_named(request.client_software_name) and _well_named(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = call.broker.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in registry.advertised()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            # Old Java clients throw on a lowest level of 0 in version 3.
            if low > 0 or call.version >= _FEATURES_FROM_ZERO_VERSION
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
            if level > 0  # as Kafka: what is at 0 is not there
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version we do not know: it names the one we do."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API.key, min_version=VERSIONS[0], max_version=VERSIONS[-1])],
    )


def _well_named(name: str) -> bool:
    return (
        bool(name)
        and name[0] in _ALPHANUMERIC
        and name[-1] in _ALPHANUMERIC
        and _INNER.issuperset(name)
    )


VERSIONS: Final = range(5)


def route(registry_of: list[Registry]) -> Route:
    """The row of ApiVersions itself, which speaks of the whole registry it stands in."""

    def handle(call: Call, request: ApiVersionsRequest) -> object:
        return api_versions(registry_of[0], call, request)

    return Route(API, VERSIONS, handle, "versions, features")
