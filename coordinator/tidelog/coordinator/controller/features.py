"""UpdateFeatures: other levels of what the cluster can do, all of them or none."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from tidelog.kernel.limits import REFUSAL_CHARS_MAX
from tidelog.kernel.texts import quoted
from tidelog.node.metadata.features import METADATA_VERSION, SUPPORTED, Levels
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.metadata_records import FeatureChanged

_KINDS_VERSION: Final = 1
_ONE_RESULT_VERSION: Final = 2


class _Kind(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


_NO_DOWNGRADE: Final = {
    _Kind.SAFE_DOWNGRADE: "Refusing to perform the requested downgrade because it might delete "
    "metadata information.",
    _Kind.UNSAFE_DOWNGRADE: "Unsafe metadata downgrade is not supported in this version.",
}


def update_features(
    image: MetadataImage,
    version: int,
    request: UpdateFeaturesRequest,
    supported: Mapping[str, Levels] = SUPPORTED,
) -> tuple[tuple[FeatureChanged, ...], UpdateFeaturesResponse]:
    """What is written, and the answer."""
    records: list[FeatureChanged] = []
    for update in request.feature_updates:
        try:
            level = _checked(image, _kind(version, update), update, supported)
        except Rejected as refused:
            detail = (
                "The update failed for all features since the following feature had an error: "
                f"{refused.detail}"
            )
            detail = quoted(detail, REFUSAL_CHARS_MAX)
            return (), UpdateFeaturesResponse(error_code=refused.code, error_message=detail)
        if level != image.features.get(update.feature):
            records.append(FeatureChanged(update.feature, level))
    rows = request.feature_updates if version < _ONE_RESULT_VERSION else ()
    answer = UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=row.feature, error_message=None) for row in rows],
    )
    return (() if request.validate_only else tuple(records)), answer


def _kind(version: int, update: FeatureUpdateKey) -> int:
    if version >= _KINDS_VERSION:
        return update.upgrade_type
    return _Kind.SAFE_DOWNGRADE if update.allow_downgrade else _Kind.UPGRADE


def _checked(
    image: MetadataImage, kind: int, update: FeatureUpdateKey, supported: Mapping[str, Levels]
) -> int:
    """The level that is asked for, where the cluster can have it."""
    name, level = update.feature, update.max_version_level
    levels, current = supported.get(name), image.features.get(name, 0)
    asked = f"Invalid update version {level} for feature {quoted(name)}."
    if kind not in set(_Kind):
        raise _refused("The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused("A feature version cannot be less than 0.")
    if levels is None:
        known = ", ".join(sorted(supported))
        raise _refused(f"{asked} This cluster does not support this feature; it has {known}.")
    if not levels.lowest <= level <= levels.highest:
        raise _refused(
            f"{asked} This cluster only supports versions {levels.lowest}-{levels.highest}."
        )
    if level != current:
        _check_direction(current, kind, update)
    return level


def _check_direction(current: int, kind: int, update: FeatureUpdateKey) -> None:
    name, level = update.feature, update.max_version_level
    asked = f"Invalid update version {level} for feature {quoted(name)}."
    if level > current:
        if kind != _Kind.UPGRADE:
            raise _refused(f"{asked} Can't downgrade to a newer version.")
    elif kind == _Kind.UPGRADE:
        raise _refused(
            f"{asked} Can't downgrade the version of this feature without setting the upgrade type "
            "to either safe or unsafe downgrade."
        )
    elif name == METADATA_VERSION:
        raise _refused(f"{asked} {_NO_DOWNGRADE[_Kind(kind)]}")


def _refused(detail: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_UPDATE_VERSION, detail)
