"""The digest of an image: the same for equal ones, another one for any difference."""

from dataclasses import fields

import msgspec
import pytest

from harness.machines.controllers import ONE, TWO, Controlled, replayed, through_snapshot, topic
from tidelog.kernel.ids import Incarnation
from tidelog.node.metadata.digest import digest
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import ConfigChanged, ResourceKind


@pytest.fixture
def controlled() -> Controlled:
    controlled = Controlled(TWO, ONE)
    controlled.create(topic("t", 2, 2, configs={"retention.ms": "7"}), topic("u"))
    for kind in ResourceKind:
        if kind is not ResourceKind.TOPIC:
            controlled.image.replay(ConfigChanged(kind, "1", "k", "v"))
    return controlled


def test_it_is_the_same_however_the_image_came_by_what_it_holds(controlled: Controlled) -> None:
    again = through_snapshot(controlled.image)
    again.topics = dict(reversed(again.topics.items()))
    again.brokers = dict(reversed(again.brokers.items()))
    assert digest(again) == digest(controlled.image)
    assert digest(replayed(controlled.log)) != digest(controlled.image)


def test_nothing_that_an_image_holds_is_left_out(controlled: Controlled) -> None:
    whole = digest(controlled.image)
    names = [one.name for one in fields(MetadataImage) if one.compare and one.name != "names"]
    for name in names:
        image = through_snapshot(controlled.image)
        held = getattr(image, name)
        setattr(image, name, type(held)(held * 2 + 1) if isinstance(held, int) else type(held)())
        assert digest(image) != whole, name


def test_nor_is_a_small_part_of_it(controlled: Controlled) -> None:
    whole = digest(controlled.image)
    image = through_snapshot(controlled.image)
    image.brokers[ONE].stopping = True
    assert digest(image) != whole
    image = through_snapshot(controlled.image)
    image.brokers[ONE].incarnation = Incarnation(9)
    assert digest(image) != whole
    image = through_snapshot(controlled.image)
    image.names["t"].configs["retention.ms"] = "8"
    assert digest(image) != whole
    image = through_snapshot(controlled.image)
    views = image.names["t"].partitions
    views[1] = msgspec.structs.replace(views[1], lost_records=1)
    assert digest(image) != whole
