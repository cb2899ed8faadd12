"""An exactly-once sink that meets markers of something else: refused, or written, never dropped."""

import json

import pytest

from harness.processes.cluster import Cluster
from harness.spark.plain import Place
from harness.spark.stand import QUERY, Died, Stand, dies_at
from harness.spark.tasks import ROWS, values_of
from tidelog.clients.admin.group_offsets import commit_offsets
from tidelog.clients.producer.transaction import end_transaction
from tidelog.spark.options import Mode, SinkOptions
from tidelog.spark.tasks import Point, SinkError
from tidelog.wire.errors import Rejected

pytestmark = pytest.mark.slow

OTHERS = [b"others %d" % n for n in range(ROWS)]
"""As many rows as a task has, but not the same."""


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


class Job(Stand):
    """A batch write with tidelog.job.id."""

    def __init__(self, place: Place, **given: str) -> None:
        topic = given.get("topic") or place.topic(partitions=2)
        super().__init__(place, **{"topic": topic, "tidelog_job_id": f"job-{topic}", **given})

    def options(self, **more: str) -> SinkOptions:
        given = {**self.given, **more}
        given.pop("tidelog_sink_id", None)
        return self.place.sink_options(Mode.BATCH, **given)


def test_a_sink_name_that_meets_another_checkpoint_is_refused(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 1)
    with pytest.raises(SinkError, match="belongs to query q, and this is query other: give each"):
        stand.write(0, 0, values=OTHERS, query="other")
    with pytest.raises(SinkError, match=r"another tidelog\.sink\.id"):
        stand.write(1, 0, query="other")
    stand.holds((0, 0))


def test_two_queries_at_once_under_one_name_are_refused(place: Place) -> None:
    stand = Stand(place)
    stand.write(0, 0)
    first = dict(stand.said)
    stand.write(0, 0, values=OTHERS, query="other")
    second = dict(stand.said)
    stand.said = first
    with pytest.raises(SinkError, match=r"let one query alone have this tidelog\.sink\.id"):
        stand.finish(0)
    stand.said = second
    with pytest.raises(SinkError, match="belongs to query q, and this is query other"):
        stand.finish(0, query="other")
    stand.micro_batch(0, 1)
    stand.holds((0, 0))


@pytest.mark.parametrize("values", [OTHERS, OTHERS[:3]])
def test_an_older_checkpoint_that_was_planned_again_with_other_rows_is_refused(
    place: Place, values: list[bytes]
) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 1, plan="planned")
    said = stand.write(0, 0, values=values)
    assert (said.skipped, said.rows) == (True, 0)
    with pytest.raises(SinkError, match="micro-batch 0 is written already, with other rows"):
        stand.finish(0, plan="planned again")
    stand.finish(0, plan="planned again", tidelog_sink_onOtherRows="keep")
    stand.holds((0, 0))


def test_a_micro_batch_of_the_same_plan_may_have_other_rows_once_it_is_complete(
    place: Place,
) -> None:
    """As rand() gives them: what is written stays."""
    stand = Stand(place)
    stand.micro_batch(0, 1, plan="planned")
    stand.write(0, 0, values=OTHERS)
    stand.finish(0, plan="planned")
    assert stand.write_whole(1, b"a", plan="one").rows == 1
    assert stand.write_whole(1, b"b", plan="one").skipped
    with pytest.raises(SinkError, match="micro-batch 1 is written already, with other rows"):
        stand.write_whole(1, b"b", plan="another")
    stand.holds_values([*values_of(0, 0), b"a"])


def test_the_same_rows_planned_again_in_other_tasks_are_written_once(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2, plan="planned")
    rows = [*values_of(0, 1), *values_of(0, 0)]
    for number in range(3):
        stand.write(0, number, values=rows[number::3])
    stand.finish(0, plan="planned again")
    stand.holds((0, 0), (0, 1))


def test_a_part_that_comes_again_with_other_rows_after_an_interrupted_end_is_refused(
    place: Place,
) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.BETWEEN))
    stand.write(0, 0, values=OTHERS)
    stand.write(0, 1)
    with pytest.raises(SinkError, match="task 0 of micro-batch 0 is written already, with other"):
        stand.finish(0)
    stand.micro_batch(0, 2)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("part", [0, None])
def test_a_consumer_group_with_the_name_of_a_sink_is_not_taken_for_its_marker(
    place: Place, part: int | None
) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    group = stand.sink.name if part is None else stand.sink.part(part)
    before = stand.marker(group)
    assert before is not None
    place.client.run(commit_offsets(place.client.view, group, {stand.sink.marker: 2}))
    with pytest.raises(SinkError, match="another program commits offsets under the name"):
        stand.write(1, 0)
    stand.holds((0, 0), (0, 1))
    # That program has a group of its own now, and the offset of this one was set back.
    offsets = {stand.sink.marker: before.offset}
    place.client.run(commit_offsets(place.client.view, group, offsets, before.metadata))
    stand.micro_batch(1, 2)
    stand.holds((0, 0), (0, 1), (1, 0), (1, 1))


def test_the_same_rows_for_another_topic_are_other_rows(place: Place) -> None:
    """With one marker topic for both, as two writes of a foreachBatch may have it."""
    marker_topic = place.topic()
    jobs = [Job(place, tidelog_job_id="two-topics", tidelog_sink_markerTopic=marker_topic)]
    jobs.append(Job(place, **{**jobs[0].given, "topic": place.topic(partitions=2)}))
    jobs[0].micro_batch(3, 1)
    jobs[1].write(3, 0)
    with pytest.raises(SinkError, match="micro-batch 3 is written already, with other rows"):
        jobs[1].finish(3)
    jobs[0].holds((3, 0))
    jobs[1].holds()


def test_a_job_is_written_once_and_refused_with_other_rows(place: Place) -> None:
    job = Job(place)
    job.micro_batch(0, 2, query="")
    job.micro_batch(0, 2, query="")
    for number in (0, 1):
        job.write(0, number, query="", values=OTHERS)
    with pytest.raises(SinkError, match=r"give other rows another tidelog\.job\.id"):
        job.finish(0, query="")
    job.holds((0, 0), (0, 1))


def test_a_job_id_serves_all_micro_batches_of_foreach_batch(place: Place) -> None:
    job = Job(place)
    job.micro_batch(4, 1)
    job.micro_batch(7, 2)
    assert job.write(7, 0).skipped
    job.holds((4, 0), (7, 0), (7, 1))


def test_two_writes_under_one_job_id_in_one_micro_batch_are_refused(place: Place) -> None:
    job = Job(place)
    job.micro_batch(3, 1)
    job.write(3, 0, values=OTHERS)
    with pytest.raises(SinkError, match="micro-batch 3 is written already, with other rows"):
        job.finish(3)
    job.holds((3, 0))


def test_the_delivery_is_switched_both_ways_and_each_row_is_there_once(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    stand.write_whole(1, *values_of(1, 0))
    # The driver died before Spark noted micro-batch 1, and the query goes on with exactly-once.
    assert stand.write(1, 0).skipped
    stand.finish(1)
    stand.micro_batch(2, 2)
    assert stand.write_whole(2, *values_of(2, 0), *values_of(2, 1)).skipped
    stand.write_whole(3, *values_of(3, 0))
    stand.holds((0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 0))


class TestMarkersOfEarlierVersions:
    """A query is upgraded in the middle of a micro-batch."""

    def commit(self, stand: Stand, group: str, offset: int, **said: object) -> None:
        view = stand.place.client.view
        where = {stand.sink.marker: offset}
        stand.place.client.run(commit_offsets(view, group, where, json.dumps(said)))

    def test_a_part_that_was_written_is_skipped_and_the_others_are_written(
        self, place: Place
    ) -> None:
        stand = Stand(place)
        self.commit(stand, stand.sink.name, 4, parts=2)
        self.commit(stand, stand.sink.part(0), 5, query=QUERY, rows=ROWS)
        self.commit(stand, stand.sink.part(1), 4, query=QUERY, rows=ROWS)
        stand.write(4, 0, values=OTHERS[:3])
        stand.write(4, 1)
        with pytest.raises(SinkError, match=f"{ROWS} are written, this time there are 3"):
            stand.finish(4)
        stand.micro_batch(4, 2)
        stand.holds((4, 1))

    def test_a_micro_batch_that_was_complete_is_skipped(self, place: Place) -> None:
        stand = Stand(place)
        self.commit(stand, stand.sink.name, 5, parts=2)
        for number in (0, 1):
            self.commit(stand, stand.sink.part(number), 5, query=QUERY, rows=ROWS)
        stand.micro_batch(4, 2)
        stand.holds()
        stand.micro_batch(5, 2)
        stand.holds((5, 0), (5, 1))

    def test_a_part_without_a_marker_is_refused_where_it_had_one(self, place: Place) -> None:
        stand = Stand(place)
        self.commit(stand, stand.sink.name, 4, parts=1)
        with pytest.raises(SinkError, match="does not know any more whether micro-batch 4"):
            stand.write(4, 0)
        assert stand.write(4, 1).rows == ROWS

    def test_a_micro_batch_in_one_transaction_is_compared_by_its_rows(self, place: Place) -> None:
        stand = Stand(place)
        self.commit(stand, stand.sink.name, 5, query=stand.sink.name, rows=2)
        assert stand.write_whole(4, b"a", b"b").skipped
        with pytest.raises(SinkError, match="2 are written, this time there are 3"):
            stand.write_whole(4, b"a", b"b", b"c")
        assert stand.write_whole(5, b"a").rows == 1

    @pytest.mark.parametrize(
        ("batch", "said"),
        [
            (4, {"parts": 2}),
            (4, {"query": "the-sink", "rows": 5}),  # exactly-once-atomic went before
            (0, None),
        ],
    )
    def test_a_part_that_was_written_stops_a_switch_to_one_transaction(
        self, place: Place, batch: int, said: dict[str, object] | None
    ) -> None:
        """The earlier version committed each part by itself, without a word in the sink's marker:
        all rows in one transaction would write those of that part twice."""
        stand = Stand(place)
        if said is not None:
            self.commit(stand, stand.sink.name, batch, **said)
            self.commit(stand, stand.sink.part(0), batch, query=QUERY, rows=ROWS)
        self.commit(stand, stand.sink.part(1), batch + 1, query=QUERY, rows=ROWS)
        rows = [*values_of(batch, 0), *values_of(batch, 1)]
        with pytest.raises(SinkError, match=r"tasks \[1\] are committed: finish it with"):
            stand.write_whole(batch, *rows, parts=2)
        stand.micro_batch(batch, 2)
        assert stand.write_whole(batch + 1, b"whole", parts=2).rows == 1
        stand.holds_values([*values_of(batch, 0), b"whole"])

    def test_a_task_that_still_runs_cannot_commit_after_a_switch_to_one_transaction(
        self, place: Place
    ) -> None:
        stand = Stand(place)
        left = stand.write(0, 1).open
        assert left is not None
        assert stand.write_whole(0, b"whole", parts=2).rows == 1
        name, identity, bumps = left.transaction
        end = end_transaction(place.client.view, name, identity, committed=True, bumps=bumps)
        with pytest.raises(Rejected):
            place.client.run(end)
        stand.holds_values([b"whole"])

    def test_a_job_of_foreach_batch_is_refused(self, place: Place) -> None:
        job = Job(place)
        self.commit(job, job.sink.name, 1, parts=1)
        with pytest.raises(SinkError, match=r"give it another tidelog\.job\.id"):
            job.write(6, 0)
