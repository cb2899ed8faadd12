"""An exactly-once sink in a topic of its own; a test plays its tasks and its driver."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness.clients.transaction_raw import end_of
from harness.processes.cluster import until
from harness.spark.plain import Place, batch_of
from harness.spark.tasks import values_of
from tidelog.clients.admin.group_offsets import CommittedOffset, stable_offset
from tidelog.clients.admin.groups import delete_group
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.producer.sender import Identity
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.options import SinkOptions
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.tasks import Point, Reached, TaskInfo, Written, go_on

QUERY = "q"


class Stand:
    """Remembers what each task of a micro-batch said last, until the micro-batch is finished."""

    def __init__(self, place: Place, **given: str) -> None:
        self.place = place
        self.topic = given.get("topic") or place.topic(partitions=2)
        self.given = {
            "topic": self.topic,
            "tidelog_delivery": "exactly-once",
            "tidelog_sink_id": f"sink-{self.topic}",
            **given,
        }
        self.sink = Sink.of(self.options(), QUERY)
        self.said: dict[int, Written] = {}
        self.permit: Identity | None = None
        """Of tasks that begin from now on."""

    def plan_job(self) -> None:
        """As Spark does before it starts the tasks of a micro-batch."""
        self.permit = Committer(self.place.client, self.options(), self.sink).permit()

    def give_up(self, parts: int) -> None:
        """As the driver does after one of this number of tasks has failed."""
        Committer(self.place.client, self.options(), self.sink).give_up(parts)

    def options(self, **more: str) -> SinkOptions:
        return self.place.sink_options(**{**self.given, **more})

    def write(
        self,
        batch: int,
        partition: int,
        *,
        values: Sequence[bytes] | None = None,
        query: str = QUERY,
        reached: Reached = go_on,
        client: Client | None = None,
        **more: str,
    ) -> Written:
        """An attempt at a task that succeeds, with these rows in place of its usual ones."""
        writer = Writer(
            client or self.place.client, self.options(**more), self.sink, reached=reached
        )
        rows = [batch_of(values_of(batch, partition) if values is None else values)]
        task = TaskInfo(query, batch, partition, permit=self.permit)
        self.said[partition] = writer.write(task, rows)
        return self.said[partition]

    def finish(
        self,
        batch: int,
        *,
        query: str = QUERY,
        plan: str | None = None,
        reached: Reached = go_on,
        client: Client | None = None,
        **more: str,
    ) -> None:
        """By a driver that has heard what each task said last."""
        committer = Committer(
            client or self.place.client, self.options(**more), self.sink, reached=reached
        )
        committer.finish(Batch(query, batch, plan), self.messages)
        self.said.clear()

    @property
    def messages(self) -> list[Written]:
        return [one for _, one in sorted(self.said.items())]

    def micro_batch(self, batch: int, tasks: int, *, plan: str | None = None, **more: Any) -> None:
        """All of it, without a failure."""
        self.said.clear()
        for number in range(tasks):
            self.write(batch, number, **more)
        self.finish(batch, plan=plan, **more)

    def write_whole(
        self,
        batch: int,
        *values: bytes,
        plan: str | None = None,
        reached: Reached = go_on,
        parts: int = 1,
        **more: str,
    ) -> Written:
        """By a driver, with exactly-once-atomic; the rows come from this number of tasks."""
        options = self.options(tidelog_delivery="exactly-once-atomic", **more)
        committer = Committer(self.place.client, options, self.sink, reached=reached)
        return committer.write_whole(Batch(QUERY, batch, plan), [batch_of(values)], parts)

    def marker(self, group: str) -> CommittedOffset | None:
        view = self.place.client.view
        return self.place.client.run(stable_offset(view, group, self.sink.marker))

    def forget(self, group: str) -> None:
        """As the cluster does when nobody has committed for long."""
        self.place.client.run(delete_group(self.place.client.view, group))

    def committed(self) -> list[bytes]:
        return self.place.values(subscribe=self.topic, kafka_isolation_level="read_committed")

    def holds(self, *tasks: tuple[int, int]) -> None:
        """Each row of these tasks once, and nothing else."""
        self.holds_values(value for task in tasks for value in values_of(*task))

    def holds_values(self, expected: Iterator[bytes] | Sequence[bytes]) -> None:
        until(self._is_stable, "the markers of all that has ended")
        assert sorted(self.committed()) == sorted(expected)

    def _is_stable(self) -> bool:
        """Apache Kafka answers who commits before it has written any."""
        view, ends = self.place.client.view, partial(end_of, self.place.bootstrap, self.topic)
        self.place.client.run(refresh(view, [self.topic]))
        numbers = view.topics[self.topic].partitions
        return all(ends(partition=n) == ends(partition=n, isolation=0) for n in numbers)


class Died(BaseException):
    """Stands for the death of whoever reached a point: nothing is cleaned up."""


def dies_at(point: Point) -> Reached:
    """Has the driver die there."""

    def reached(here: Point, _batch: int, _partition: int) -> None:
        if here is point:
            raise Died

    return reached


@contextmanager
def another_client(place: Place) -> Iterator[Client]:
    """With connections of its own, as another process has them."""
    options = place.sink_options(topic="t").connection
    client = Client(Transport(ConnectionSettings()), options.bootstrap)
    client.connect()
    try:
        yield client
    finally:
        client.network.close()  # type: ignore[attr-defined]  # it is a Transport
