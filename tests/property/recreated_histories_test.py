"""A name whose topic is deleted and made anew while brokers come and go.

A failure names its seed: `Recreations(seed).run()` is the same history again, step by step.
"""

from random import Random

import pytest

from harness.simulated_recreations import Recreations
from tidelog.kernel.ids import ZERO_UUID
from tidelog.node.log.log import Log
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.hosting import Hosting

HISTORIES = 20
HISTORIES_NIGHTLY = 5_000
CAUGHT_WITHIN = range(20, 90)
"""The rarer hole in two of these."""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_nobody_meets_records_of_an_earlier_topic(*, nightly: bool) -> None:
    first = Random().randrange(1 << 40) if nightly else 0
    _run_all(range(first, first + (HISTORIES_NIGHTLY if nightly else HISTORIES)))


def _run_all(seeds: range) -> None:
    for seed in seeds:
        try:
            Recreations(seed).run()
        except Exception as failure:
            raise AssertionError(f"Recreations({seed}).run()") from failure


def _takes_any(_: Hosting, image: MetadataImage, log: Log) -> bool:
    """A log is the topic's that has its name, whoever it was made for."""
    return log.name.topic in image.names


def _takes_unknown(_: Hosting, image: MetadataImage, log: Log) -> bool:
    """A log that forgot whose it is belongs to the topic that has its name."""
    topic = image.names.get(log.name.topic)
    return topic is not None and log.name.topic_id in {topic.id, ZERO_UUID}


@pytest.mark.slow
@pytest.mark.parametrize("hole", [_takes_any, _takes_unknown])
def test_a_sweep_that_takes_too_much_is_caught(
    monkeypatch: pytest.MonkeyPatch, hole: object
) -> None:
    monkeypatch.setattr(Hosting, "_is_wanted", hole)
    with pytest.raises(AssertionError):
        _run_all(CAUGHT_WITHIN)
