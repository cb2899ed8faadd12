"""UpdateFeatures (key 57), versions 0-2, all flexible.

v1 names the kind of the change and may only look, v2 gives one error for the whole.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class FeatureUpdateKey:
    feature: str = row(STRING)
    max_version_level: int = row(INT16)
    allow_downgrade: bool = row(BOOL, "0")
    upgrade_type: int = row(INT8, "1+", default=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: int = row(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = row(array(FeatureUpdateKey))
    validate_only: bool = row(BOOL, "1+")


@message
class UpdatableFeatureResult:
    feature: str = row(STRING, "0-1")
    error_code: int = row(INT16, "0-1")
    error_message: str | None = row(STRING, "0-1", nullable="0-1")


@message
class UpdateFeaturesResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = row(array(UpdatableFeatureResult), "0-1")


API = ApiSchema(
    key=57,
    name="UpdateFeatures",
    versions=range(3),
    flexible_from=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
