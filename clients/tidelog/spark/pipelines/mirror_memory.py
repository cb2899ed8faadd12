"""What a mirror keeps beside its checkpoint: its name, and up to where its copy was counted."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.spark.offsets import Positions, from_json, to_json
from tidelog.spark.pipelines.failures import UsageError

FILE = "tidelog-mirror.json"
OLD_NAME = "mirror"
"""Of every mirror without --name, before names were kept."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Positions at a moment when the copy had all records up to there, and no others."""

    source: Positions
    copy: Positions


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one mirror."""

    name: str
    marker: str
    """The topic under whose name the sink keeps its markers."""
    counted: Counted | None = None

    def until(self, counted: Counted) -> "Memory":
        return replace(self, counted=counted)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "marker": self.marker}
        if self.counted is not None:
            found["source"] = to_json(self.counted.source)
            found["copy"] = to_json(self.counted.copy)
        return found

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Memory":
        counted = None
        if "source" in document:
            counted = Counted(from_json(document["source"]), from_json(document["copy"]))
        return cls(document["name"], document["marker"], counted)


def derived_name(cluster: str, topics: Sequence[str], prefix: str) -> str:
    """Another one for another source, other topics or other copies, so that no two mirrors without
    --name ever meet in one cluster.

    >>> derived_name("lkc-1", ["b", "a"], "") == derived_name("lkc-1", ["a", "b"], "")
    True
    """
    said = "\0".join([cluster, prefix, *sorted(set(topics))])
    return f"mirror-{cluster}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def old_memory(name: str | None, topics: Sequence[str]) -> Memory:
    """Of a checkpoint that a version without this file has left."""
    return Memory(name or OLD_NAME, topics[0])


def check_name(memory: Memory, name: str | None, checkpoint: str) -> None:
    """UsageError where --name is not that of the checkpoint."""
    if name is not None and name != memory.name:
        raise UsageError(
            f"--name={name}: the checkpoint {checkpoint} is that of mirror {memory.name}; leave "
            "--name out to go on with it, or give a new mirror another --checkpoint"
        )
