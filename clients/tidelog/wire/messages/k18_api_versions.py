"""ApiVersions (key 18), versions 0-4, flexible from 3.

Response v3 adds the features as tagged fields; a supported feature with minimum 0 must be left out
of v3 (old Java clients throw) and may stand in v4. A request of a version that the broker does not
know is answered in v0, error 35, and the response header is v0 always.
"""

from tidelog.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ApiVersionsRequest:
    client_software_name: str = row(STRING, "3+")
    client_software_version: str = row(STRING, "3+")


@message
class ApiVersion:
    api_key: int = row(INT16)
    min_version: int = row(INT16)
    max_version: int = row(INT16)


@message
class SupportedFeatureKey:
    name: str = row(STRING, "3+")
    min_version: int = row(INT16, "3+")
    max_version: int = row(INT16, "3+")


@message
class FinalizedFeatureKey:
    name: str = row(STRING, "3+")
    max_version_level: int = row(INT16, "3+")
    min_version_level: int = row(INT16, "3+")


@message
class ApiVersionsResponse:
    error_code: int = row(INT16)
    api_keys: list[ApiVersion] = row(array(ApiVersion))
    throttle_time_ms: int = row(INT32, "1+")
    supported_features: list[SupportedFeatureKey] = row(array(SupportedFeatureKey), "3+", tag=0)
    finalized_features_epoch: int = row(INT64, "3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = row(array(FinalizedFeatureKey), "3+", tag=2)
    zk_migration_ready: bool = row(BOOL, "3+", tag=3)


API = ApiSchema(
    key=18,
    name="ApiVersions",
    versions=range(5),
    flexible_from=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)
