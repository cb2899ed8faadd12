"""UpdateFeatures: which levels a cluster can be brought to, by Kafka's rules."""

import pytest

from harness.machines.controllers import CLUSTER, Controlled
from tidelog.coordinator.controller.features import update_features
from tidelog.coordinator.controller.requests import Activate, UpdateFeatures
from tidelog.kernel.ids import Incarnation
from tidelog.node.metadata.features import METADATA_VERSION, TRANSACTION_VERSION, Levels
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
)
from tidelog.wire.metadata_records import FeatureChanged

UPGRADE, SAFE, UNSAFE = 1, 2, 3
SUPPORTED = {METADATA_VERSION: Levels(7, 27), "tides.version": Levels(0, 3)}
REFUSED = ErrorCode.INVALID_UPDATE_VERSION


def asked(
    *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> tuple[tuple[FeatureChanged, ...], int, str | None]:
    """Of a cluster at tides.version 2 and metadata.version 20: records, error code and sentence."""
    image = MetadataImage(features={METADATA_VERSION: 20, "tides.version": 2})
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    records, answer = update_features(image, version, request, SUPPORTED)
    return records, answer.error_code, answer.error_message


def test_a_level_is_raised_by_a_record_and_lowered_where_that_is_asked_for() -> None:
    assert asked(("tides.version", 3, UPGRADE), (METADATA_VERSION, 21, UPGRADE)) == (
        (FeatureChanged("tides.version", 3), FeatureChanged(METADATA_VERSION, 21)),
        0,
        None,
    )
    lowered = ((FeatureChanged("tides.version", 1),), 0, None)
    assert asked(("tides.version", 1, SAFE)) == lowered
    assert asked(("tides.version", 1, UNSAFE)) == lowered


def test_the_level_that_is_there_needs_no_record() -> None:
    assert asked(("tides.version", 2, UPGRADE)) == ((), 0, None)


def test_who_only_looks_changes_nothing() -> None:
    assert asked(("tides.version", 3, UPGRADE), validate_only=True) == ((), 0, None)


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (("tides.version", 4, UPGRADE), "only supports versions 0-3"),
        (("tides.version", -1, UPGRADE), "cannot be less than 0"),
        (("tides.version", 1, UPGRADE), "without setting the upgrade type"),
        (("tides.version", 3, SAFE), "Can't downgrade to a newer version"),
        (("tides.version", 3, 0), "does not support the given upgrade type"),
        (("ebbs.version", 1, UPGRADE), "it has metadata.version, tides.version"),
        ((METADATA_VERSION, 19, SAFE), "might delete metadata information"),
        ((METADATA_VERSION, 19, UNSAFE), "Unsafe metadata downgrade is not supported"),
    ],
)
def test_one_that_cannot_be_changes_none_of_them(
    update: tuple[str, int, int], sentence: str
) -> None:
    records, code, said = asked(("tides.version", 3, UPGRADE), update)
    assert (records, code) == ((), REFUSED)
    assert said is not None
    assert said.startswith("The update failed for all features since the following feature had")
    assert sentence in said


def test_version_0_lowers_where_it_is_allowed_to_and_answers_for_each() -> None:
    image = MetadataImage(features={"tides.version": 2})
    for allowed, code in ((False, REFUSED), (True, ErrorCode.NONE)):
        update = FeatureUpdateKey(
            feature="tides.version", max_version_level=1, allow_downgrade=allowed
        )
        request = UpdateFeaturesRequest(feature_updates=[update])
        _, answer = update_features(image, 0, request, SUPPORTED)
        assert answer.error_code == code
    assert answer.results == [UpdatableFeatureResult(feature="tides.version", error_message=None)]


def test_the_controller_knows_the_features_of_this_program() -> None:
    controlled = Controlled()
    updates = [FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=27)]
    request = UpdateFeaturesRequest(feature_updates=updates)
    reply = controlled.ask(UpdateFeatures(2, request))
    assert (getattr(reply, "error_code", None), controlled.last_records) == (0, ())


def test_what_was_lowered_stays_so_under_the_next_controller() -> None:
    controlled = Controlled()
    for level, kind in ((0, SAFE), (1, UPGRADE)):
        update = FeatureUpdateKey(
            feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind
        )
        before, _ = controlled.image.finalized_features()
        controlled.ask(UpdateFeatures(2, UpdateFeaturesRequest(feature_updates=[update])))
        assert controlled.last_records == (FeatureChanged(TRANSACTION_VERSION, level),)
        controlled.ask(Activate(CLUSTER, Incarnation(level + 2), "run-1"))
        assert len(controlled.last_records) == 1, "of the controller alone"
        epoch, levels = controlled.image.finalized_features()
        assert levels[TRANSACTION_VERSION] == level
        assert epoch > before, "clients believe the highest"
