"""Which place a setting's value comes from, and what else stands behind it."""

import pytest

from tidelog.node.origins import Explained, Layers, Origin, Source, TopicSettings
from tidelog.node.settings import topic_value


def topic(name: str, layers: Layers, **own: str) -> Explained:
    given = {key.replace("_", "."): value for key, value in own.items()}
    return TopicSettings(layers).explain(name, given)


def test_what_nobody_sets_is_the_default() -> None:
    found = topic("max.message.bytes", Layers({}))
    assert found.source is Source.DEFAULT
    assert found == ("1048588", [Origin("message.max.bytes", "1048588", Source.DEFAULT)])


def test_the_topic_wins_over_all_and_all_are_told_the_strongest_first() -> None:
    name = "message.max.bytes"
    layers = Layers(static={name: "3"}, cluster={name: "2"}, own={name: "1"})
    found = topic("max.message.bytes", layers, max_message_bytes="0")
    assert found.value == "0"
    assert [(one.name, one.value, one.source) for one in found.origins] == [
        ("max.message.bytes", "0", 1),
        (name, "1", 2),
        (name, "2", 3),
        (name, "3", 4),
        (name, "1048588", 5),
    ]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "2", "log.retention.ms": ""}, 7_200_000),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_a_brokers_retention_counts(given: dict[str, str], value: int) -> None:
    assert topic_value("retention.ms", {}, given) == value
    assert topic_value("retention.ms", {"retention.ms": "9"}, given) == 9


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"log.roll.hours": "1"}, "segment.ms", 3_600_000),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, "segment.ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush.ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, "flush.ms", 8),
        ({"log.segment.delete.delay.ms": "7"}, "file.delete.delay.ms", 7),
        ({"log.cleaner.min.cleanable.ratio": "0.25"}, "min.cleanable.dirty.ratio", 0.25),
    ],
)
def test_a_topic_takes_what_the_broker_says(given: dict[str, str], name: str, value: float) -> None:
    assert topic_value(name, {}, given) == value


def test_a_default_is_not_explained_by_the_brokers_weaker_setting() -> None:
    assert topic("retention.ms", Layers({})) == ("604800000", [])
    assert Layers({}).explain("log.retention.ms") == (None, [])
    hours = Origin("log.retention.hours", "168", Source.DEFAULT)
    assert Layers({}).explain("log.retention.hours") == ("168", [hours])


def test_a_weaker_setting_that_is_in_force_is_told() -> None:
    found = topic("retention.ms", Layers({"log.retention.hours": "1"}))
    assert (found.value, found.source) == ("3600000", Source.STATIC_BROKER)
    assert [one.name for one in found.origins] == ["log.retention.hours"] * 2


def test_a_brokers_setting_leaves_out_what_only_stronger_ones_say() -> None:
    layers = Layers({"log.retention.ms": "5", "log.retention.hours": "1"})
    stronger = layers.explain("log.retention.ms")
    assert [(one.name, one.source) for one in stronger.origins] == [
        ("log.retention.ms", 4),
        ("log.retention.hours", 4),
        ("log.retention.hours", 5),
    ]
    weaker = layers.explain("log.retention.hours")
    assert [(one.name, one.value) for one in weaker.origins] == [
        ("log.retention.hours", "1"),
        ("log.retention.hours", "168"),
    ]
