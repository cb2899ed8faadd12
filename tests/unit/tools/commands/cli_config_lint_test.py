"""Settings that contradict each other or lose data, and those that do not."""

from collections.abc import Mapping

import pytest

from tidelog.tools.lint import Subject, check_broker, check_topic

SOUND = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1000",
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.bytes": "1000000",
    "delete.retention.ms": "86400000",
}


def subject(
    given: Mapping[str, str], *, replicas: int = 3, brokers: int = 3, idle: str = ""
) -> Subject:
    """A sound topic, but for what is given."""
    return Subject(
        name="topic t",
        values={**SOUND, **given},
        chosen=frozenset(given),
        documentation={idle: "Known and checked for Kafka's sake; it has no effect here."},
        replicas=replicas,
        brokers=brokers,
    )


def test_a_sound_topic_and_a_plain_broker_have_no_findings() -> None:
    assert check_topic(subject({})) == []
    assert check_topic(subject({}, replicas=1, brokers=1))[0].setting == "min.insync.replicas"
    assert check_topic(subject({"min.insync.replicas": "1"}, replicas=1, brokers=1)) == []
    assert check_broker(subject({"default.replication.factor": "3"})) == []


@pytest.mark.parametrize(
    ("given", "replicas", "setting", "reason"),
    [
        ({"min.insync.replicas": "4"}, 3, "min.insync.replicas", "but there are 3 replicas"),
        ({"min.insync.replicas": "3"}, 3, "min.insync.replicas", "stops when one broker does"),
        ({"min.insync.replicas": "1"}, 3, "min.insync.replicas", "may be on one broker only"),
        ({"min.insync.replicas": "1"}, 1, "replication.factor", "a lost broker loses"),
        ({"unclean.leader.election.enable": "true"}, 3, "unclean.leader.election.enable", "lost"),
        ({"retention.ms": "-1"}, 3, "retention.ms", "until the disk is full"),
        ({"retention.ms": "500"}, 3, "retention.ms", "before anyone has read them"),
        ({"retention.bytes": "999999"}, 3, "retention.bytes", "before it is full"),
        ({"max.message.bytes": "1000001"}, 3, "max.message.bytes", "in between are refused"),
        ({"min.compaction.lag.ms": "5"}, 3, "min.compaction.lag.ms", "has no compact"),
        (
            {"cleanup.policy": "compact", "delete.retention.ms": "100"},
            3,
            "delete.retention.ms",
            "misses that a key was deleted",
        ),
        (
            {"cleanup.policy": "compact", "retention.bytes": "5"},
            3,
            "retention.bytes",
            "has no delete",
        ),
        (
            {
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.after.max.ms": "5",
            },
            3,
            "message.timestamp.after.max.ms",
            "the broker's clock stamps",
        ),
    ],
)
def test_a_topic_is_warned_of(
    given: dict[str, str], replicas: int, setting: str, reason: str
) -> None:
    (found,) = check_topic(subject(given, replicas=replicas))
    assert (found.subject, found.setting) == ("topic t", setting)
    assert reason in found.reason


def test_a_topic_that_keeps_everything_by_its_keys_may_grow() -> None:
    assert check_topic(subject({"cleanup.policy": "compact", "retention.ms": "604800000"}))
    assert check_topic(subject({"cleanup.policy": "compact"})) == []
    both = {"cleanup.policy": "compact,delete", "retention.ms": "604800000"}
    assert check_topic(subject(both)) == []


def test_what_has_no_effect_is_told_only_where_somebody_set_it() -> None:
    (found,) = check_topic(subject({"preallocate": "true"}, idle="preallocate"))
    assert (found.setting, found.reason) == ("preallocate", "set, but it has no effect here")
    assert check_topic(subject({}, idle="preallocate")) == []
    assert check_broker(subject({"listeners": "x"}, brokers=1, idle="listeners")) == []


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"log.retention.hours": "1"}, []),
        ({"log.retention.hours": "1", "log.retention.ms": "5"}, ["log.retention.hours"]),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "5"},
            ["log.retention.minutes", "log.retention.hours"],
        ),
        ({"log.roll.hours": "1", "log.roll.jitter.ms": "5"}, []),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, ["log.roll.hours"]),
    ],
)
def test_a_broker_is_warned_of_units_that_do_not_count(
    given: dict[str, str], settings: list[str]
) -> None:
    assert [found.setting for found in check_broker(subject(given))] == settings


def test_a_broker_is_warned_of_topics_that_nobody_copies() -> None:
    made = {"auto.create.topics.enable": "true", "default.replication.factor": "1"}
    (found,) = check_broker(subject(made))
    assert found.setting == "default.replication.factor"
    assert check_broker(subject(made, brokers=1)) == []
