"""Kafka's form of a reassignment plan: written, read, and refused where it is none."""

import json

import pytest

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.plan_form import PlanError, document, read

PLAN: dict[TopicPartition, tuple[int, ...]] = {
    ("b", Partition(0)): (2, 1),
    ("a", Partition(1)): (0,),
}


def test_a_plan_is_written_as_kafka_s_tool_writes_it() -> None:
    assert document(PLAN) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 1, "replicas": [0], "log_dirs": ["any"]},
            {"topic": "b", "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]},
        ],
    }


def test_what_was_written_is_read() -> None:
    assert read(json.dumps(document(PLAN))) == PLAN


def test_log_dirs_and_version_may_be_left_out() -> None:
    assert read('{"partitions": [{"topic": "a", "partition": 1, "replicas": [0]}]}') == {
        ("a", 1): (0,)
    }


def row(**changes: object) -> str:
    one = {"topic": "a", "partition": 0, "replicas": [0, 1], **changes}
    return json.dumps({"version": 1, "partitions": [one]})


TWICE = {"topic": "a", "partition": 0, "replicas": [0]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("[]", "must be"),
        ('{"version": 1}', "must be"),
        ('{"version": 2, "partitions": []}', "version is 2"),
        ('{"partitions": [7]}', "must have a topic"),
        (row(topic=None), "must have a topic"),
        (row(partition="0"), "must have a topic"),
        (row(replicas=0), "must have a topic"),
        (row(replicas=[]), "ids of brokers"),
        (row(replicas=[-1]), "ids of brokers"),
        (row(replicas=[True]), "ids of brokers"),
        (row(replicas=[1, 1]), "name a broker twice"),
        (row(log_dirs=["any"]), "as many log_dirs"),
        (row(log_dirs=["any", "/data"]), "brokers choose them"),
        (json.dumps({"partitions": [TWICE, TWICE]}), "a-0 twice"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        read(text)
