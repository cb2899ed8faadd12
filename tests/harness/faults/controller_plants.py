"""Holes that designs like this one had, as switches that only tests can set: each takes one rule of
the controller away. A check that does not see the hole is no check."""

from collections.abc import Callable

import msgspec
import pytest

from tidelog.coordinator.controller import brokers, elections, isr_changes
from tidelog.kernel.ids import BrokerId
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import PartitionView


def _fenced_into_isr(image: MetadataImage, member: BrokerId, epoch: int) -> bool:
    """KIP-841: whoever the leader names joins, alive or not."""
    broker = image.brokers.get(member)
    return broker is not None and broker.epoch == epoch


def _reborn_into_isr(image: MetadataImage, member: BrokerId, epoch: int) -> bool:
    """KIP-903: the life that the leader saw catch up may be over."""
    del epoch
    return image.is_active(member)


def _late_changes_taken(leader: BrokerId, view: PartitionView, change: IsrChange) -> ErrorCode:
    """A leader that is none any more, or of an earlier state, is believed."""
    del leader, view, change
    return ErrorCode.NONE


def _losses_uncounted(view: PartitionView, *given: object, **more: object) -> PartitionView:
    """Someone out of sync leads as if nothing had happened."""
    after = _CHANGED(view, *given, **more)  # type: ignore[arg-type]  # as it is called
    return msgspec.structs.replace(after, lossy_elections=view.lossy_elections)


_CHANGED = elections.changed

PLANTS = {
    "KIP-841": (isr_changes, "_is_eligible", _fenced_into_isr),
    "KIP-903": (isr_changes, "_is_eligible", _reborn_into_isr),
    "KIP-320": (isr_changes, "_of_another_state", _late_changes_taken),
    "KIP-966": (brokers, "_LOST_FILES", frozenset()),
    "KIP-966 forgotten": (elections, "eligible_forgotten", lambda _view: None),
    "unclean election": (elections, "changed", _losses_uncounted),
}


def plant_of(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(*PLANTS[name])
