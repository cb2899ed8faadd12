"""A name whose topic is deleted and made anew while brokers come and go.

A failure names its seed: `Recreations(seed).run()` is the same history again, step by step.
"""

import pytest

from harness.faults.planting import Planting
from harness.simulation.recreations import Recreations
from harness.suite.budgets import Histories
from tidelog.kernel.ids import ZERO_UUID
from tidelog.node.log.log import Log
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.hosting import Hosting


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_nobody_meets_records_of_an_earlier_topic(histories: Histories) -> None:
    histories.run(lambda seed: Recreations(seed).run())


def test_a_topic_is_whole_once_its_leader_has_heard_who_is_in_sync() -> None:
    Recreations(65_000_035).run()


def _takes_any(_: Hosting, image: MetadataImage, log: Log) -> bool:
    """A log is the topic's that has its name, whoever it was made for."""
    return log.name.topic in image.names


def _takes_unknown(_: Hosting, image: MetadataImage, log: Log) -> bool:
    """A log that forgot whose it is belongs to the topic that has its name."""
    topic = image.names.get(log.name.topic)
    return topic is not None and log.name.topic_id in {topic.id, ZERO_UUID}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("hole", [_takes_any, _takes_unknown])
def test_a_sweep_that_takes_too_much_is_caught(hole: object, planting: Planting) -> None:
    planting.is_found(
        lambda patch: patch.setattr(Hosting, "_is_wanted", hole),
        lambda seed: Recreations(seed).run(),
    )
