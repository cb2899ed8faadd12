"""A reassignment plan in the form of Kafka's tool: which replicas partitions shall have. Pure.

{"version": 1, "partitions": [{"topic", "partition", "replicas", "log_dirs"}]}
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.kernel.ids import Partition, TopicPartition

VERSION = 1
ANYWHERE = "any"
"""The broker chooses the log directory."""


class PlanError(Exception):
    """The text is no plan; it says why."""


def document(targets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """As Kafka's tool reads it."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": [ANYWHERE] * len(replicas),
        }
        for (topic, partition), replicas in sorted(targets.items())
    ]
    return {"version": VERSION, "partitions": rows}


def read(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition; PlanError where it is not as Kafka's tool takes it."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise PlanError(f"it is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("partitions"), list):
        raise PlanError('it must be {"version": 1, "partitions": [...]}')
    if found.get("version", VERSION) != VERSION:
        raise PlanError(f"its version is {found['version']}, not {VERSION}")
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for number, row in enumerate(found["partitions"]):
        partition, replicas = _row(number, row)
        if partition in targets:
            raise PlanError(f"it names {partition[0]}-{partition[1]} twice")
        targets[partition] = replicas
    return targets


def _row(number: int, row: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        row = {}
    topic, partition, replicas = (row.get(name) for name in ("topic", "partition", "replicas"))
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(replicas, list)):
        raise PlanError(f"partitions[{number}] must have a topic, a partition and replicas")
    name = f"{topic}-{partition}"
    if not replicas or any(not _is_id(one) for one in replicas):
        raise PlanError(f"the replicas of {name} must be ids of brokers, one at least")
    if len(set(replicas)) < len(replicas):
        raise PlanError(f"the replicas of {name} name a broker twice")
    directories = row.get("log_dirs", [ANYWHERE] * len(replicas))
    if not isinstance(directories, list) or len(directories) != len(replicas):
        raise PlanError(f"{name} must have as many log_dirs as replicas, or none")
    if any(one != ANYWHERE for one in directories):
        raise PlanError(f"the log_dirs of {name} must be {ANYWHERE!r}: brokers choose them")
    return (topic, Partition(partition)), tuple(replicas)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
