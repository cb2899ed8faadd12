"""The exactly-once sink without a JVM: tasks are killed, repeated, and overtaken by others."""

import json
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness.cluster import Cluster, until
from harness.kafka_node import TRANSACTIONS, kafka_node
from harness.spark_plain import Place, batch_of
from harness.spark_tasks import ROWS, attempts, values_of
from harness.transaction_raw import end_of
from tidelog.clients.admin.group_offsets import stable_offset
from tidelog.clients.admin.groups import delete_group
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.failures import FatalError
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.ids import Partition
from tidelog.spark.exactly_once import Sink, Writer, finish, let_go
from tidelog.spark.options import SinkOptions
from tidelog.spark.tasks import Point, Reached, TaskInfo, Written, go_on
from tidelog.spark.writing import SinkError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with kafka_node(tmp_path_factory.mktemp("kafka"), TRANSACTIONS) as bootstrap:
        yield Place(bootstrap)


class Stand:
    """A sink of its own in a topic of its own."""

    def __init__(self, place: Place, **given: str) -> None:
        self.place = place
        self.topic = place.topic(partitions=2)
        self.given = {
            "topic": self.topic,
            "tidelog_delivery": "exactly-once",
            "tidelog_sink_id": f"sink-{self.topic}",
            **given,
        }
        self.options: SinkOptions = place.sink_options(**self.given)
        self.sink = Sink.of(self.options, "")

    def write(
        self,
        batch: int,
        partition: int,
        *,
        reached: Reached = go_on,
        client: Client | None = None,
        **more: str,
    ) -> Written:
        options = self.place.sink_options(**{**self.given, **more})
        writer = Writer(client or self.place.client, options, self.sink, reached=reached)
        rows = [batch_of(values_of(batch, partition))]
        return writer.write(TaskInfo("q", batch, partition), rows)

    def finish(self, batch: int, tasks: int) -> None:
        written = [Written(number, ROWS) for number in range(tasks)]
        finish(self.place.client, self.sink, batch, written)

    def forget(self, group: str) -> None:
        """As the cluster does when nobody has committed for long."""
        self.place.client.run(delete_group(self.place.client.view, group))

    def committed(self) -> list[bytes]:
        return self.place.values(subscribe=self.topic, kafka_isolation_level="read_committed")

    def holds(self, *tasks: tuple[int, int]) -> None:
        """Each row of these tasks once, and nothing else."""
        until(self._is_stable, "the markers of all that has ended")
        expected = [value for batch, partition in tasks for value in values_of(batch, partition)]
        assert sorted(self.committed()) == sorted(expected)

    def _is_stable(self) -> bool:
        """Apache Kafka answers who commits before it has written any."""
        view, ends = self.place.client.view, partial(end_of, self.place.bootstrap, self.topic)
        self.place.client.run(refresh(view, [self.topic]))
        numbers = view.topics[self.topic].partitions
        return all(ends(partition=n) == ends(partition=n, isolation=0) for n in numbers)


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_tasks_that_are_killed_at_any_point_and_repeated_write_each_row_once(
    where: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    stand = Stand(place)
    options = {name.replace("_", "."): value for name, value in stand.given.items()}
    with attempts({"kafka.bootstrap.servers": place.bootstrap, **options}) as attempt:
        points = [Point.BEFORE, Point.MID, Point.AFTER]
        for batch, point in enumerate(points):
            assert attempt(batch, 0) == {"rows": ROWS, "skipped": False}
            assert attempt(batch, 1, point.value) == {"signal": signal.SIGKILL}
            # The query is started again, and does the micro-batch again.
            assert attempt(batch, 0) == {"rows": 0, "skipped": True}
            again = point is Point.AFTER
            assert attempt(batch, 1) == {"rows": 0 if again else ROWS, "skipped": again}
            stand.finish(batch, 2)
    stand.holds(*[(batch, number) for batch in range(len(points)) for number in (0, 1)])


def test_a_driver_that_dies_before_it_noted_a_micro_batch_does_it_again_in_vain(
    place: Place,
) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    assert [stand.write(0, number).skipped for number in (0, 1)] == [True, True]
    stand.finish(0, 2)
    stand.finish(0, 2)
    assert not stand.write(1, 0).skipped
    stand.holds((0, 0), (0, 1), (1, 0))


def another_client(place: Place) -> Client:
    client = Client(
        Transport(ConnectionSettings()), place.sink_options(topic="t").connection.bootstrap
    )
    client.connect()
    return client


@pytest.mark.parametrize("where", ["place", "kafka"])
@pytest.mark.parametrize("point", [Point.BEFORE, Point.MID])
def test_an_attempt_that_was_overtaken_commits_nothing(
    where: str, point: Point, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    stand, rival = Stand(place), another_client(place)
    done: list[Written] = []

    def overtaken(here: Point, batch: int, partition: int) -> None:
        if here is point:
            done.append(stand.write(batch, partition, client=rival))

    with pytest.raises(FatalError, match="another producer has taken the transactional id over"):
        stand.write(0, 0, reached=overtaken)
    assert done == [Written(0, ROWS)]
    assert stand.write(0, 0).skipped
    stand.holds((0, 0))
    rival.network.close()  # type: ignore[attr-defined]  # it is a Transport


def test_a_micro_batch_that_is_older_than_the_sink_is_refused(place: Place) -> None:
    stand = Stand(place)
    for batch in range(3):
        stand.write(batch, 0)
    with pytest.raises(SinkError, match="micro-batch 2 is written already, this is 0: the check"):
        stand.write(0, 0)
    stand.holds((0, 0), (1, 0), (2, 0))


def test_a_marker_that_was_forgotten_is_no_reason_to_write_again(place: Place) -> None:
    stand = Stand(place)
    stand.write(0, 0)
    stand.finish(0, 1)
    stand.write(1, 0)
    stand.forget(stand.sink.part(0))
    with pytest.raises(SinkError, match="does not know any more whether micro-batch 1 is written"):
        stand.write(1, 0)
    stand.forget(stand.sink.name)
    with pytest.raises(SinkError, match="does not know any more"):
        stand.write(1, 0)
    stand.holds((0, 0), (1, 0))
    assert stand.write(1, 0, tidelog_sink_onMissingMarker="write").rows == ROWS


def test_a_task_that_no_earlier_micro_batch_had_needs_no_marker(place: Place) -> None:
    stand = Stand(place)
    stand.write(0, 0)
    stand.finish(0, 1)
    assert stand.write(1, 1).rows == ROWS
    stand.write(1, 0)
    stand.finish(1, 2)
    stand.write(2, 0)
    stand.finish(2, 1)
    assert stand.write(3, 1).rows == ROWS, "what it was two micro-batches ago is remembered"


def test_a_micro_batch_is_done_when_each_task_has_said_so(place: Place) -> None:
    stand = Stand(place)
    said = [Written(0, 5), None, Written(2, 5)]
    with pytest.raises(SinkError, match=r"only tasks \[0, 2\] say that they are done"):
        finish(place.client, stand.sink, 0, said)


def test_what_a_failed_query_left_open_holds_nobody_back(place: Place) -> None:
    stand = Stand(place)

    def break_off(point: Point, *_: int) -> None:
        if point is Point.MID:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        stand.write(0, 0, reached=break_off)
    other = place.source_options(subscribe=stand.topic)
    assert other.fetching.isolation == 0
    let_go(place.client, stand.sink, 1)
    stand.write(0, 1)
    stand.holds((0, 1))


def test_two_sinks_whose_names_differ_by_a_number_do_not_meet(place: Place) -> None:
    one = Stand(place)
    two = Stand(place, tidelog_sink_id=f"{one.sink.name}-0", topic=one.topic)
    one.write(0, 0)
    two.finish(0, 1)
    one.finish(0, 1)
    assert two.write(1, 1).rows == ROWS
    assert one.sink.part(0) != two.sink.name


def test_a_whole_micro_batch_is_written_in_one_transaction_and_once(place: Place) -> None:
    stand = Stand(place, tidelog_delivery="exactly-once-atomic")
    writer = Writer(place.client, stand.options, stand.sink)
    rows: list[Any] = [
        batch_of(values_of(0, number), partition=[number] * ROWS) for number in (0, 1)
    ]
    task = TaskInfo("q", 0, 0)
    assert writer.write_whole(task, rows) == Written(0, 2 * ROWS)
    assert writer.write_whole(task, rows).skipped
    stand.holds((0, 0), (0, 1))
    # The same query goes on with a transaction for each task: what is written stays written.
    assert stand.write(0, 1, tidelog_delivery="exactly-once").skipped


def test_a_sink_of_several_topics_keeps_its_marker_where_it_is_told(place: Place) -> None:
    one, two = place.topic(), place.topic()
    given = {"tidelog_delivery": "exactly-once", "tidelog_sink_id": f"both-{one}"}
    options = place.sink_options(tidelog_sink_markerTopic=one, **given)
    writer = Writer(place.client, options, Sink.of(options, ""))
    rows = batch_of([b"a", b"b", b"c"], topic=[one, two, one])
    assert writer.write(TaskInfo("q", 0, 0), [rows]).rows == 3
    assert writer.write(TaskInfo("q", 0, 0), [rows]).skipped
    assert place.values(subscribe=one) == [b"a", b"c"]
    assert place.values(subscribe=two) == [b"b"]


def test_the_marker_says_who_wrote_how_much(place: Place) -> None:
    stand = Stand(place)
    stand.write(0, 0)
    group = stand.sink.part(0)
    marker = place.client.run(stable_offset(place.client.view, group, stand.sink.marker))
    assert marker is not None
    assert (marker.offset, json.loads(marker.metadata)) == (1, {"query": "q", "rows": ROWS})


class Forgetting(Writer):
    """Does not look whether its rows are there."""

    def _is_written(self, name: str, task: TaskInfo) -> bool:
        return super()._is_written(name, task) and False


def test_who_does_not_read_the_marker_writes_twice_and_is_found_out(place: Place) -> None:
    stand = Stand(place)
    writer = Forgetting(place.client, stand.options, stand.sink)
    for _ in range(2):
        writer.write(TaskInfo("q", 0, 0), [batch_of(values_of(0, 0))])
    with pytest.raises(AssertionError):
        stand.holds((0, 0))


def test_a_topic_is_created_at_its_first_use_where_the_cluster_does_so(place: Place) -> None:
    stand = Stand(place)
    stand.topic = f"{stand.topic}-new"
    stand.given["topic"] = stand.topic
    stand.sink = Sink(f"sink-{stand.topic}", (stand.topic, Partition(0)))
    assert stand.write(0, 0).rows == ROWS
    stand.holds((0, 0))
