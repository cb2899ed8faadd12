"""Topics of one cluster into another, exactly once, and the offsets of groups with them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tidelog.clients.admin.group_offsets import committed_offsets
from tidelog.clients.client import Client
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines import mirror_check
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, VIOLATION, PipelineError, UsageError
from tidelog.spark.pipelines.frames import Driven
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.kept import Kept, check_local
from tidelog.spark.pipelines.mirror_memory import (
    FILE,
    OLD_NAME,
    Counted,
    Memory,
    check_name,
    derived_name,
    old_memory,
)
from tidelog.spark.pipelines.output import emit, note
from tidelog.spark.pipelines.topics import (
    connect,
    ensure_topics,
    partition_counts,
    partitions_of,
    settled_ends,
)
from tidelog.spark.pipelines.translating import Copy
from tidelog.spark.sessions import read_stream

_PARTS_ASKED = 32
"""Of a sink whose first micro-batch never came to its end: only its parts are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    to: str
    topics: str
    checkpoint: str
    name: str | None = None
    prefix: str = ""
    groups: str | None = None
    replicas: int = option(given.whole, 0)
    batch_offsets: int = option(given.size, 1_000_000)
    follow: bool = False
    interval: float = option(given.seconds, 5.0)

    def check(self) -> None:
        check_local(self.checkpoint)
        if self.to == self.bootstrap and not self.prefix:
            raise UsageError(
                "--to is the cluster itself: the copies need another name, by --prefix"
            )

    def look(self, client: Client) -> None:
        counts = partition_counts(partitions_of(client, self.topics))
        copies = {self.prefix + topic: count for topic, count in counts.items()}
        target = connect(self.to)
        ensure_topics(target, copies, self.replicas or -1)
        kept = Kept(f"{self.checkpoint}/{FILE}")
        document = kept.read()
        if document is not None:
            check_name(Memory.of(document), self.name, self.checkpoint)
        elif _is_used(self.checkpoint):
            kept.write(old_memory(self.name, self.topics.split(",")).document())
        else:
            memory = self._new_memory(client)
            self._check_new(target, memory, counts)
            counted = Counted({}, settled_ends(target, partitions_of(target, ",".join(copies))))
            kept.write(memory.until(counted).document())

    def _new_memory(self, client: Client) -> Memory:
        topics = sorted(set(self.topics.split(",")))
        name = self.name or derived_name(client.view.cluster_id or "", topics, self.prefix)
        return Memory(name, topics[0])

    def _check_new(self, target: Client, memory: Memory, counts: dict[str, int]) -> None:
        """A new checkpoint begins from the start: what a mirror of that name has copied would be
        copied again, or be taken for what this one copies."""
        copies = {self.prefix + topic for topic in counts}
        for name in [memory.name] if self.name else [memory.name, OLD_NAME]:
            parts = min(_PARTS_ASKED, sum(counts.values()))
            groups = [name, *(f"{name}/{number}" for number in range(parts))]
            found = {
                topic
                for group in groups
                for topic, _ in target.run(committed_offsets(target.view, group))
            }
            if found & copies:
                raise PipelineError(_known(self, name, found & copies))


def _known(arguments: Arguments, name: str, copies: set[str]) -> str:
    named = ", ".join(sorted(copies))
    return (
        f"mirror {name} has written {named} in {arguments.to} already, with another checkpoint "
        f"than {arguments.checkpoint}, which is new: go on with that checkpoint; if it is lost, "
        f"delete {named} there and mirror again; another --name copies all records once more, "
        "behind those that are there"
    )


def _is_used(checkpoint: str) -> bool:
    """By a query of Spark, which keeps its id there."""
    parts = urlsplit(checkpoint)
    return (Path(unquote(parts.path) if parts.scheme else checkpoint) / "metadata").exists()


def main(spark: SparkSession, arguments: Arguments) -> int:
    kept = Kept(f"{arguments.checkpoint}/{FILE}")
    document = kept.read()
    assert document is not None, "looked for before"
    arguments = replace(arguments, name=Memory.of(document).name)
    if not arguments.follow:
        return _round(spark, arguments, kept, tells_always=True)
    code, first = DONE, True
    with INTERRUPTS.awaited():
        while code == DONE and not INTERRUPTS.asked:
            code = _round(spark, arguments, kept, tells_always=first)
            first = False
            INTERRUPTS.pause(arguments.interval)
    return code


def _round(spark: SparkSession, arguments: Arguments, kept: Kept, *, tells_always: bool) -> int:
    """All there is now, counted, and where groups are in it; of a copy that was broken off nobody
    can say. What has changed nothing is told only where that is asked."""
    memory = Memory.of(kept.read() or {})
    done = _copy(spark, arguments, memory)
    if INTERRUPTS.asked and not arguments.follow:
        _tell(done, {"rows": done.rows, "found": None}, {})
        return INTERRUPTS.code
    check = mirror_check.Check(spark, arguments.bootstrap, arguments.to, arguments.prefix)
    found = check.of(done, memory)
    groups = {} if INTERRUPTS.asked or found.is_wrong else _groups(arguments)
    if found.now is not None and not (INTERRUPTS.asked or found.is_wrong):
        kept.write(memory.until(found.now).document())
    if done.rows or tells_always or found.is_wrong:
        _tell(done, found.document(), groups)
    if found.is_wrong:
        note(f"error: {found.sentence(arguments.to)}")
    return VIOLATION if found.is_wrong else DONE


def _tell(done: Driven, counts: dict[str, Any], groups: dict[str, Any]) -> None:
    emit({"pipeline": "mirror", **counts, "micro_batches": done.batches, "groups": groups})


def _copy(spark: SparkSession, arguments: Arguments, memory: Memory) -> Driven:
    """All there is now. Between two such runs the copy stands still: only then can offsets of
    groups be counted from its end."""
    rows = read_stream(
        spark,
        arguments.bootstrap,
        checkpoint=arguments.checkpoint,
        subscribe=arguments.topics,
        startingOffsets="earliest",
        includeHeaders=True,
        maxOffsetsPerTrigger=arguments.batch_offsets,
        kafka__isolation__level="read_committed",
        commitOffsetsToGroup=memory.name,
    )
    topic = f.concat(f.lit(arguments.prefix), f.col("topic")).alias("topic")
    writer = (
        rows.select("key", "value", "partition", "headers", "timestamp", topic)
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.to)
        .option("includeHeaders", "true")
        .option("tidelog.delivery", "exactly-once")
        .option("tidelog.sink.id", memory.name)
        .option("tidelog.sink.markerTopic", arguments.prefix + memory.marker)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
    )
    return Driven(writer.start(), "mirror").to_the_end()


def _groups(arguments: Arguments) -> dict[str, Any]:
    assert arguments.name is not None, "given, or kept beside the checkpoint"
    copy = Copy(arguments.bootstrap, arguments.to, arguments.prefix, progress=arguments.name)
    groups = arguments.groups.split(",") if arguments.groups else []
    return {group: copy.tell(group) for group in groups}
