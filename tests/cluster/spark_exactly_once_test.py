"""The exactly-once sink without a JVM: tasks and drivers are killed, repeated, and overtaken."""

import json
import signal
import time
from itertools import combinations, product

import pytest

from harness.clients.transaction_raw import end_of
from harness.processes.cluster import Cluster
from harness.spark.plain import Place, batch_of
from harness.spark.stand import QUERY, Died, Stand, another_client, dies_at
from harness.spark.tasks import ROWS, attempts, values_of
from tidelog.clients.failures import FatalError
from tidelog.kernel.ids import Partition
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.rows import RowError
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.tasks import Point, SinkError, TaskInfo, Written

pytestmark = pytest.mark.slow

IN_A_TASK = [Point.BEFORE, Point.MID, Point.AFTER]
ON_THE_DRIVER = [Point.ENDING, Point.BETWEEN, Point.ENDED, Point.COMPLETE]


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


@pytest.fixture(scope="module")
def kafka(shared_kafka: str) -> Place:
    return Place(shared_kafka)


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_tasks_and_drivers_that_are_killed_at_any_point_write_each_row_once(
    where: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    stand = Stand(place)
    options = {name.replace("_", "."): value for name, value in stand.given.items()}
    killed = {"signal": signal.SIGKILL}
    with attempts({"kafka.bootstrap.servers": place.bootstrap, **options}) as play:
        for batch, point in enumerate(IN_A_TASK):
            assert play.task(batch, 0) == {"rows": ROWS, "skipped": False}
            assert play.task(batch, 1, point.value) == killed
            # The query is started again, and does the micro-batch again: nothing was committed.
            assert play.task(batch, 0) == {"rows": ROWS, "skipped": False}
            assert play.task(batch, 1) == {"rows": ROWS, "skipped": False}
            assert play.finish(batch) == {"finished": batch}
        for batch, point in enumerate(ON_THE_DRIVER, start=len(IN_A_TASK)):
            for part in (0, 1):
                assert play.task(batch, part) == {"rows": ROWS, "skipped": False}
            assert play.finish(batch, point.value) == killed
            ended = {Point.ENDING: 0, Point.BETWEEN: 1}.get(point, 2)
            for part in (0, 1):
                is_there = part < ended
                assert play.task(batch, part) == {
                    "rows": 0 if is_there else ROWS,
                    "skipped": is_there,
                }
            assert play.finish(batch) == {"finished": batch}
    batches = len(IN_A_TASK) + len(ON_THE_DRIVER)
    stand.holds(*product(range(batches), (0, 1)))


def test_nothing_is_read_as_committed_before_the_driver_has_finished(place: Place) -> None:
    """The end of a task's input does not mean that the task has succeeded."""
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    assert stand.committed() == []
    stand.finish(0)
    stand.holds((0, 0), (0, 1))


def test_a_task_whose_input_ended_early_is_done_again_as_a_whole(place: Place) -> None:
    stand = Stand(place)
    stand.write(0, 0, values=values_of(0, 0)[:10])
    assert stand.write(0, 0).rows == ROWS
    stand.finish(0)
    stand.holds((0, 0))


def test_what_a_task_that_fails_has_written_holds_no_reader_back(place: Place) -> None:
    stand = Stand(place)
    rows = batch_of([bytes(100_000)] * ROWS, partition=[0] * ROWS)
    bad = batch_of([b"x"], partition=[99])
    writer = Writer(place.client, stand.options(), stand.sink)
    with pytest.raises(
        RowError, match=r"a row has partition 99, but topic .* has partitions 0 to 1"
    ):
        writer.write(TaskInfo(QUERY, 0, 0), [rows, rows, rows, bad])
    assert end_of(place.bootstrap, stand.topic, 0) > 1, "no row was written, only a marker"
    stand.holds()


def test_a_driver_that_dies_before_spark_noted_a_micro_batch_does_it_again_in_vain(
    place: Place,
) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    assert [stand.write(0, number).skipped for number in (0, 1)] == [True, True]
    stand.finish(0)
    assert not stand.write(1, 0).skipped
    stand.finish(1)
    stand.holds((0, 0), (0, 1), (1, 0))


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_an_attempt_that_was_overtaken_writes_nothing_more(
    where: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    stand = Stand(place)
    with another_client(place) as rival:

        def overtaken(here: Point, batch: int, partition: int) -> None:
            if here is Point.BEFORE:
                stand.write(batch, partition, client=rival)

        with pytest.raises(FatalError, match="another producer has taken the transactional id"):
            stand.write(0, 0, reached=overtaken)
        assert stand.said[0].rows == ROWS
        stand.finish(0)
    assert stand.write(0, 0).skipped
    stand.holds((0, 0))


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_an_attempt_that_was_overtaken_when_it_was_done_is_not_committed(
    where: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    stand = Stand(place)
    with another_client(place) as rival:

        def overtaken(here: Point, batch: int, partition: int) -> None:
            if here is Point.MID:
                stand.write(batch, partition, client=rival)

        stand.write(0, 0, reached=overtaken)
        with pytest.raises(SinkError, match="another attempt of this task, or another program"):
            stand.finish(0)
    stand.holds()
    stand.micro_batch(0, 1)
    stand.holds((0, 0))


def test_a_micro_batch_that_is_older_than_the_sink_is_refused(place: Place) -> None:
    stand = Stand(place)
    for batch in range(3):
        stand.micro_batch(batch, 1)
    with pytest.raises(SinkError, match="micro-batch 2 is written already, this is 0: the check"):
        stand.write(0, 0)
    stand.holds((0, 0), (1, 0), (2, 0))


def test_a_marker_that_was_forgotten_is_no_reason_to_write_again(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    for number in (0, 1):
        stand.write(1, number)
    with pytest.raises(Died):
        stand.finish(1, reached=dies_at(Point.BETWEEN))
    stand.forget(stand.sink.part(0))
    with pytest.raises(SinkError, match="does not know any more whether micro-batch 1 is written"):
        stand.write(1, 0)
    stand.forget(stand.sink.name)
    with pytest.raises(SinkError, match="does not know any more"):
        stand.write(1, 0)
    assert stand.write(1, 0, tidelog_sink_onMissingMarker="write").rows == ROWS


def test_a_part_whose_marker_was_forgotten_goes_on_where_the_sink_s_marker_can_tell(
    place: Place,
) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 1)
    stand.forget(stand.sink.part(0))
    stand.micro_batch(1, 1)
    stand.holds((0, 0), (1, 0))


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize(
    "gone", [gone for size in (1, 2, 3) for gone in combinations(("", "/0", "/1"), size)]
)
def test_groups_of_a_sink_that_expire_one_by_one_lead_to_a_refusal_but_not_to_rows_twice(
    place: Place, gone: tuple[str, ...], *, is_interrupted: bool
) -> None:
    """A cluster forgets each group by its own last commit."""
    stand = Stand(place)
    for batch in (0, 1):
        stand.micro_batch(batch, 2)
    if is_interrupted:
        for number in (0, 1):
            stand.write(2, number)
        with pytest.raises(Died):
            stand.finish(2, reached=dies_at(Point.BETWEEN))
        Committer(place.client, stand.options(), stand.sink).let_go(2)
    for suffix in gone:
        stand.forget(stand.sink.name + suffix)
    forgets_a_part = gone != ("",)
    if forgets_a_part and (is_interrupted or "" in gone):
        with pytest.raises(SinkError, match=r"tidelog\.sink\.onMissingMarker=write goes on"):
            stand.micro_batch(2, 2)
        Committer(place.client, stand.options(), stand.sink).let_go(2)
        third = [(2, 0)] if is_interrupted else []
    else:
        stand.micro_batch(2, 2)
        third = [(2, 0), (2, 1)]
    stand.holds((0, 0), (0, 1), (1, 0), (1, 1), *third)


def test_a_task_that_no_earlier_micro_batch_had_needs_no_marker(place: Place) -> None:
    stand = Stand(place)
    for batch, tasks in enumerate([1, 2, 1, 2]):
        stand.micro_batch(batch, tasks)
    stand.holds((0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1))


def test_markers_of_parts_that_are_not_needed_are_kept(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    before = stand.marker(stand.sink.part(1))
    stand.micro_batch(1, 1)
    assert stand.marker(stand.sink.part(1)) == before


def test_a_micro_batch_is_done_when_each_task_has_said_so(place: Place) -> None:
    stand = Stand(place)
    committer = Committer(place.client, stand.options(), stand.sink)
    said = [Written(0, 5), None, Written(2, 5)]
    with pytest.raises(SinkError, match=r"only tasks \[0, 2\] say that they are done"):
        committer.finish(Batch(QUERY, 0), said)


def test_what_a_failed_query_left_open_holds_nobody_back(place: Place) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    Committer(place.client, stand.options(), stand.sink).let_go(2)
    stand.holds()


def test_two_sinks_whose_names_differ_by_a_number_do_not_meet(place: Place) -> None:
    one = Stand(place)
    two = Stand(place, tidelog_sink_id=f"{one.sink.name}-0", topic=one.topic)
    one.micro_batch(0, 1)
    two.micro_batch(0, 2)
    one.micro_batch(1, 2)
    assert one.sink.part(0) != two.sink.name


def test_a_whole_micro_batch_is_written_in_one_transaction_and_once(place: Place) -> None:
    stand = Stand(place)
    rows = [*values_of(0, 0), *values_of(0, 1)]
    assert stand.write_whole(0, *rows).rows == 2 * ROWS
    assert stand.write_whole(0, *rows).skipped
    stand.holds((0, 0), (0, 1))
    # The same query goes on with a transaction for each task: what is written stays written.
    assert [stand.write(0, number).skipped for number in (0, 1)] == [True, True]
    stand.finish(0)
    stand.holds((0, 0), (0, 1))


def test_a_sink_of_several_topics_keeps_its_marker_where_it_is_told(place: Place) -> None:
    one, two = place.topic(), place.topic()
    given = {"tidelog_delivery": "exactly-once", "tidelog_sink_id": f"both-{one}"}
    options = place.sink_options(tidelog_sink_markerTopic=one, **given)
    sink = Sink.of(options, "")
    rows = batch_of([b"a", b"b", b"c"], topic=[one, two, one])
    for is_again in (False, True):
        written = Writer(place.client, options, sink).write(TaskInfo("q", 0, 0), [rows])
        assert written.skipped is is_again
        Committer(place.client, options, sink).finish(Batch("q", 0), [written])
    assert place.values(subscribe=one) == [b"a", b"c"]
    assert place.values(subscribe=two) == [b"b"]


def test_the_markers_say_whose_rows_they_are(place: Place) -> None:
    stand = Stand(place)
    said = stand.write(0, 0)
    began_ms = time.time_ns() // 1_000_000
    stand.finish(0, plan="a-digest")
    total = {"rows": ROWS, "sum": f"{said.total.sum:016x}"}
    part, sink = stand.marker(stand.sink.part(0)), stand.marker(stand.sink.name)
    assert part is not None
    assert (part.offset, json.loads(part.metadata)) == (1, {"query": QUERY, **total})
    assert sink is not None
    whole = {"v": 2, "query": QUERY, "parts": 1, "batch": 0, **total, "plan": "a-digest"}
    found = json.loads(sink.metadata)
    assert found.pop("renewed") >= began_ms
    assert (sink.offset, found) == (1, whole)


def test_a_topic_is_created_at_its_first_use_where_the_cluster_does_so(place: Place) -> None:
    stand = Stand(place)
    stand.topic = f"{stand.topic}-new"
    stand.given["topic"] = stand.topic
    stand.sink = Sink(f"sink-{stand.topic}", (stand.topic, Partition(0)))
    stand.micro_batch(0, 1)
    stand.holds((0, 0))
