"""Exactly once: a task's rows and the word that they are written, in one transaction.

The word, the marker, is an offset that a consumer group named after the sink and the task's number
commits: micro-batch N is written where it says N + 1. Whoever writes begins by taking the
transactional id of the same name over. That ends what an earlier attempt left open, one way or the
other, before the marker is read; and from there on that attempt can commit nothing. So of all
attempts one commits, and those after it see that and write nothing.

It needs the same rows in the same task when a micro-batch is done again.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelog.clients.admin.group_offsets import CommittedOffset, commit_offsets, stable_offset
from tidelog.clients.client import Client
from tidelog.clients.failures import ClientError
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.transaction import Membership
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.spark.options import SinkOptions
from tidelog.spark.tasks import Point, Reached, TaskInfo, Written, go_on
from tidelog.spark.writing import SinkError, open_topic, producer_settings, write_rows
from tidelog.wire.errors import ErrorCode, Rejected


class Sink(NamedTuple):
    """An exactly-once sink, as the cluster knows it."""

    name: str
    marker: TopicPartition
    """Under which partition's name its groups keep their offsets; nothing is read from it."""

    @classmethod
    def of(cls, options: SinkOptions, query: str) -> "Sink":
        assert options.marker_topic is not None, "checked with the options"
        name = options.job_id or options.sink_id or query
        if not name:
            raise SinkError("an exactly-once sink needs tidelog.sink.id here: the query has no id")
        return cls(name, (options.marker_topic, Partition(0)))

    def part(self, number: int) -> str:
        """The group, and the transactional id, of one task; never another sink's name."""
        return f"{self.name}/{number}"


class Writer:
    """Writes one task's rows of one micro-batch, unless that has happened already."""

    def __init__(
        self, client: Client, options: SinkOptions, sink: Sink, *, reached: Reached = go_on
    ) -> None:
        self._client = client
        self._options = options
        self._sink = sink
        self._reached = reached

    def write(self, task: TaskInfo, batches: Iterable[Any]) -> Written:
        """As the part of the sink that has the task's number."""
        return self._write(self._sink.part(task.partition), task, batches)

    def write_whole(self, task: TaskInfo, batches: Iterable[Any]) -> Written:
        """As the sink itself: all rows of a micro-batch."""
        return self._write(self._sink.name, task, batches)

    def _write(self, name: str, task: TaskInfo, batches: Iterable[Any]) -> Written:
        producer = TransactionalProducer(self._client, producer_settings(self._options, name))
        open_topic(self._client, producer, self._sink.marker[0])
        if self._is_written(name, task):
            for _ in batches:
                """Whoever gives the rows wants to be read to the end."""
            return Written(task.partition, 0, skipped=True)
        producer.begin()
        rows = write_rows(self._client, producer, self._options, batches, first=task.partition)
        self._reached(Point.BEFORE, task.batch, task.partition)
        said = json.dumps({"query": task.query, "rows": rows})
        producer.send_offsets({self._sink.marker: task.batch + 1}, Membership(name, metadata=said))
        self._reached(Point.MID, task.batch, task.partition)
        producer.commit()
        self._reached(Point.AFTER, task.batch, task.partition)
        return Written(task.partition, rows)

    def _is_written(self, name: str, task: TaskInfo) -> bool:
        """By an earlier attempt, whose transaction is committed; it is not open any more."""
        marker = self._client.run(stable_offset(self._client.view, name, self._sink.marker))
        if marker is None and name != self._sink.name:
            # As a task of this sink never before; perhaps the sink was written as a whole then.
            name = self._sink.name
            marker = self._client.run(stable_offset(self._client.view, name, self._sink.marker))
            self._check_new(task, marker)
        if marker is None:
            return False
        if marker.offset > task.batch + 1:
            raise SinkError(
                f"sink {self._sink.name}: micro-batch {marker.offset - 1} is written already, this "
                f"is {task.batch}: the checkpoint is older than the sink, or is another query's; "
                "give a new checkpoint another tidelog.sink.id"
            )
        return marker.offset == task.batch + 1

    def _check_new(self, task: TaskInfo, whole: CommittedOffset | None) -> None:
        """Beyond the first micro-batch a task has no marker only where no earlier one had as many
        tasks, or where the cluster has forgotten it."""
        if task.batch == 0 or self._options.writes_without_marker:
            return
        if whole is None or task.partition < _parts(whole):
            raise SinkError(
                f"sink {self._sink.name}: the cluster does not know any more whether micro-batch "
                f"{task.batch} is written by task {task.partition}: it forgets offsets of groups "
                "after offsets.retention.minutes; tidelog.sink.onMissingMarker=write goes on, and "
                "may write one micro-batch twice"
            )


def finish(
    client: Client, sink: Sink, batch: int, messages: Sequence[Written | None]
) -> Sequence[Written]:
    """On the driver, before Spark notes that the micro-batch is done: all tasks have said so, and
    the sink remembers how many there were."""
    done = [one for one in messages if one is not None]
    if sorted(one.partition for one in done) != list(range(len(messages))):
        said = sorted(one.partition for one in done)
        raise SinkError(
            f"sink {sink.name}: of micro-batch {batch} only tasks {said} say that they are done"
        )
    before = client.run(stable_offset(client.view, sink.name, sink.marker))
    parts = max(len(messages), 0 if before is None else _parts(before))
    for number in range(len(messages), parts):
        _keep(client, sink, sink.part(number))
    said_now = json.dumps({"parts": parts})
    _commit(client, sink, sink.name, batch + 1, said_now)
    return done


def let_go(client: Client, sink: Sink, parts: int) -> None:
    """What failed tasks left open is aborted now, not in its time: it holds readers back."""
    for number in range(parts):
        try:
            client.run(init_producer_id(client.view, sink.part(number)))
        except (ClientError, Rejected):
            return  # the cluster aborts it in time


def _parts(marker: CommittedOffset) -> int:
    try:
        return int(json.loads(marker.metadata)["parts"])
    except (ValueError, KeyError, TypeError):
        return 0


def _keep(client: Client, sink: Sink, group: str) -> None:
    """Have a group that no task of this micro-batch has used remembered as long as the others."""
    marker = client.run(stable_offset(client.view, group, sink.marker))
    if marker is not None:
        _commit(client, sink, group, marker.offset, marker.metadata)


def _commit(client: Client, sink: Sink, group: str, offset: int, metadata: str) -> None:
    codes = client.run(commit_offsets(client.view, group, {sink.marker: offset}, metadata))
    for code in codes.values():
        if code is not ErrorCode.NONE:
            raise Rejected(code, f"group {group} of sink {sink.name}")
