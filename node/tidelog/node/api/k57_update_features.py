"""UpdateFeatures (key 57), versions 0-2, all flexible. The coordinator decides."""

from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k57_update_features import (
    API,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def update_features(call: Call, request: UpdateFeaturesRequest) -> None:
    def refusal(code: ErrorCode) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code=code, error_message=None)

    forward(call, request.timeout_ms, refusal)


ROUTE = Route(
    API,
    range(3),
    update_features,
    "levels that ApiVersions lists; metadata.version goes up only, transaction.version down too",
)
