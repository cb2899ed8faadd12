"""What can happen to an exactly-once sink while its driver ends the transactions of its tasks."""

import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from harness.clients.transaction_raw import end_of
from harness.processes.cluster import Cluster, until
from harness.spark.answers import changed_answers, lost, refused
from harness.spark.plain import Place, batch_of
from harness.spark.stand import QUERY, Died, Stand, another_client, dies_at
from harness.spark.tasks import ROWS, attempts, values_of
from tidelog.clients.admin.group_offsets import commit_offsets as group_commit
from tidelog.clients.asking import Ask, Plan
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import end_transaction
from tidelog.kernel.instant import s
from tidelog.spark import sink_commit
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.sink_decisions import RENEWED_AFTER_MS, Batch
from tidelog.spark.sink_markers import sink_marker, sink_metadata
from tidelog.spark.tasks import Point, SinkError, TaskInfo
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k09_offset_fetch import API as OFFSET_FETCH
from tidelog.wire.messages.k26_end_txn import API as END_TXN
from tidelog.wire.messages.k28_txn_offset_commit import API as TXN_OFFSET_COMMIT

pytestmark = pytest.mark.slow

VERSIONS = [1, 2]
"""Of transactions: in the second each end takes an epoch."""


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


def make_old(stand: Stand, age_ms: int = RENEWED_AFTER_MS) -> int:
    """Have the sink's marker say that the parts' markers must be renewed; when they were committed
    in fact. A negative age is that of a clock which was ahead."""
    known = sink_marker(stand.marker(stand.sink.name))
    assert known is not None
    assert known.renewed_ms is not None
    said = sink_metadata(replace(known, renewed_ms=known.renewed_ms - age_ms))
    client, offsets = stand.place.client, {stand.sink.marker: known.offset}
    client.run(group_commit(client.view, stand.sink.name, offsets, said))
    return known.renewed_ms


def commit(place: Place, name: str, identity: Identity, bumps: bool) -> Plan[Identity]:  # noqa: FBT001 -- as it is kept
    return end_transaction(place.client.view, name, identity, committed=True, bumps=bumps)


@pytest.mark.parametrize("point", [Point.ENDING, Point.BETWEEN, Point.ENDED, Point.COMPLETE])
def test_a_driver_that_dies_between_two_ends_is_followed_by_one_that_completes_them(
    place: Place, point: Point
) -> None:
    stand = Stand(place)
    for number in range(3):
        stand.write(0, number)
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(point))
    for number in range(3):
        stand.write(0, number)
    stand.finish(0)
    stand.micro_batch(1, 2)
    stand.holds((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))


def test_a_transaction_that_expires_before_its_end_fails_the_micro_batch(place: Place) -> None:
    stand = Stand(place, kafka_transaction_timeout_ms="100")
    stand.write(0, 0)
    stand.write(0, 1, kafka_transaction_timeout_ms="60000")

    def is_aborted() -> bool:
        ends = [end_of(place.bootstrap, stand.topic, which, 0) for which in (0, 1)]
        return ends[0] > ROWS and ends[0] == ends[1]

    stand.write(0, 1, values=[])  # leaves the partitions to the other task
    until(is_aborted, "the cluster has aborted the transaction", 60)
    with pytest.raises(SinkError, match=r"kafka\.transaction\.timeout\.ms=100 is too short, for"):
        stand.finish(0)
    stand.holds()
    stand.given["kafka_transaction_timeout_ms"] = "60000"
    stand.micro_batch(0, 2)
    stand.holds((0, 0), (0, 1))


def test_a_task_that_is_slower_than_its_transaction_is_told_which_setting_to_raise(
    place: Place,
) -> None:
    stand = Stand(place, kafka_transaction_timeout_ms="100")
    rows = batch_of([bytes(100_000)] * ROWS, partition=[0] * ROWS)

    def slow_rows() -> Iterator[Any]:
        yield rows

        def is_aborted() -> bool:
            ends = [end_of(place.bootstrap, stand.topic, which) for which in (0, 1)]
            return ends[0] > 0 and ends[0] == ends[1]

        until(is_aborted, "the cluster has aborted the transaction", 60)
        yield from [rows, rows]

    writer = Writer(place.client, stand.options(), stand.sink)
    with pytest.raises(SinkError, match=r"kafka\.transaction\.timeout\.ms=100 is too short, for"):
        writer.write(TaskInfo(QUERY, 0, 0), slow_rows())
    stand.holds()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_whose_answer_is_lost_is_asked_for_again(place: Place, version: int) -> None:
    stand = Stand(place)
    with changed_answers(place, version, lost, lost) as (client, network):
        for number in (0, 1):
            stand.write(0, number, client=client)
        stand.finish(0, client=client)
        assert network.asked == 4
        stand.micro_batch(1, 2, client=client)
    stand.holds((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_an_end_that_is_refused_has_happened_if_the_marker_says_so(
    place: Place, version: int, code: ErrorCode
) -> None:
    stand = Stand(place)
    with changed_answers(place, version, refused(code), refused(code)) as (client, _):
        for number in (0, 1):
            stand.write(0, number, client=client)
        stand.finish(0, client=client)
    stand.holds((0, 0), (0, 1))


def test_an_end_that_is_refused_fails_the_micro_batch_if_the_marker_does_not_say_so(
    place: Place,
) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    place.client.run(init_producer_id(place.client.view, stand.sink.part(1)))
    with pytest.raises(SinkError, match="another attempt of this task, or another program, has t"):
        stand.finish(0)
    stand.said.clear()
    assert stand.write(0, 0).skipped
    assert not stand.write(0, 1).skipped
    stand.finish(0)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("began_ago_ms", [3_600_000, -3_600_000])
def test_a_refused_end_is_explained_also_if_the_clocks_of_hosts_differ(
    place: Place, began_ago_ms: int
) -> None:
    """Only the host of the task knows when the task began."""
    stand = Stand(place)
    said = stand.write(0, 0)
    assert said.open is not None
    began = said.open._replace(began_ms=said.open.began_ms - began_ago_ms)
    stand.said[0] = replace(said, open=began)
    place.client.run(init_producer_id(place.client.view, stand.sink.part(0)))
    with pytest.raises(SinkError) as refused_end:
        stand.finish(0)
    text = str(refused_end.value)
    assert "if the clocks of the task's host and the driver differ" in text
    assert re.search(r"kafka\.transaction\.timeout\.ms=\d+ is too short", text)
    assert "another attempt of this task, or another program, has taken transactional id" in text


def test_an_attempt_that_was_overtaken_before_it_read_its_marker_says_so_soon(
    place: Place,
) -> None:
    """The other attempt's open transaction may change that marker until the driver ends it."""
    stand = Stand(place)
    with another_client(place) as rival, changed_answers(place, 2) as (client, network):

        def overtaken(ask: Ask) -> None:
            if ask.api is OFFSET_FETCH:
                network.before = lambda _ask: None
                stand.write(0, 0, client=rival)

        network.before = overtaken
        with pytest.raises(SinkError, match="another attempt of task 0 of micro-batch 0 has begun"):
            stand.write(0, 0, client=client)
    stand.finish(0)
    stand.holds((0, 0))


def test_the_time_for_an_answer_is_not_the_time_for_the_ends_of_all_tasks(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch of hundreds of tasks has as many transactions to end."""
    monkeypatch.setattr(sink_commit, "ENDED_TOGETHER", 1)
    stand = Stand(place)
    with changed_answers(place, 2) as (client, network):

        def takes_long(ask: Ask) -> None:
            if ask.api is END_TXN:
                network.ahead_ns += s(20)  # of the 30 that the client waits

        for number in range(4):
            stand.write(0, number, client=client)
        network.before = takes_long
        stand.finish(0, client=client)
    stand.holds(*((0, number) for number in range(4)))


def test_an_attempt_that_wakes_before_the_end_fails_the_micro_batch_and_nothing_is_lost(
    place: Place,
) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    said = stand.messages
    with another_client(place) as zombie:
        stand.write(0, 0, client=zombie, values=[b"a part of its rows"])
        with pytest.raises(SinkError, match="another attempt of this task"):
            Committer(place.client, stand.options(), stand.sink).finish(Batch(QUERY, 0), said)
    stand.micro_batch(0, 2)
    stand.holds((0, 0), (0, 1))


def test_an_attempt_that_wakes_after_the_end_writes_nothing(place: Place) -> None:
    stand = Stand(place)
    stand.micro_batch(0, 2)
    with another_client(place) as zombie:
        assert stand.write(0, 0, client=zombie).skipped
    stand.said.clear()
    stand.micro_batch(1, 2)
    stand.holds((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_driver_that_wakes_after_another_one_has_finished_commits_nothing(
    place: Place, tasks: int
) -> None:
    """Also where the other one has fewer tasks: it takes the sink's own id over as well. The first
    driver sleeps when it has read the sink's marker, and is about to say that it ends."""
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    said, rows = stand.messages, [*values_of(0, 0), *values_of(0, 1)]
    with another_client(place) as awake, changed_answers(place, 2) as (client, network):

        def sleep(ask: Ask) -> None:
            if ask.api is TXN_OFFSET_COMMIT:
                network.before = lambda _ask: None
                stand.said.clear()
                for number in range(tasks):
                    stand.write(0, number, values=rows[number::tasks], client=awake)
                stand.finish(0, client=awake)

        network.before = sleep
        with pytest.raises(SinkError, match="another driver has taken it over"):
            Committer(client, stand.options(), stand.sink).finish(Batch(QUERY, 0), said)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("version", VERSIONS)
def test_parts_that_a_micro_batch_does_not_need_cost_it_nothing(place: Place, version: int) -> None:
    stand = Stand(place)
    with changed_answers(place, version) as (client, network):
        asked: list[str] = []
        stand.micro_batch(0, 20, client=client)
        stand.write(1, 0, client=client)
        network.before = lambda ask: asked.append(ask.api.name)
        stand.finish(1, client=client)
    # The sink's marker alone is read once and committed twice: it says ending, then complete.
    assert asked.count("OffsetFetch") == 1
    assert asked.count("TxnOffsetCommit") == 2
    stand.holds(*((0, number) for number in range(20)), (1, 0))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("age_ms", [RENEWED_AFTER_MS, -RENEWED_AFTER_MS])
def test_markers_of_unused_parts_are_renewed_now_and_then_in_one_transaction(
    place: Place, version: int, age_ms: int
) -> None:
    """Else the cluster would forget them, as it does with what nobody has committed for a week. If
    the clock was set back, it does not tell how old they are, and the next micro-batch renews."""
    stand = Stand(place)
    with changed_answers(place, version) as (client, network):
        stand.micro_batch(0, 20, client=client)
        before = [stand.marker(stand.sink.part(number)) for number in range(1, 20)]
        at_ms = make_old(stand, age_ms)
        renewed: set[str] = set()

        def note(ask: Ask) -> None:
            if ask.api is TXN_OFFSET_COMMIT:
                assert ask.message.transactional_id == stand.sink.name
                renewed.add(ask.message.group_id)

        stand.write(1, 0, client=client)
        network.before = note
        stand.finish(1, client=client)
    assert renewed == {stand.sink.name, *(stand.sink.part(number) for number in range(1, 20))}
    assert [stand.marker(stand.sink.part(number)) for number in range(1, 20)] == before
    again = sink_marker(stand.marker(stand.sink.name))
    assert again is not None
    assert again.renewed_ms is not None
    assert at_ms <= again.renewed_ms < at_ms + RENEWED_AFTER_MS


def test_a_task_that_died_does_not_hold_up_a_micro_batch_without_it(place: Place) -> None:
    """Its open transaction changes a marker that is renewed; nobody would read it before the end of
    that transaction's time."""
    stand = Stand(place, kafka_transaction_timeout_ms="600000")
    stand.micro_batch(0, 2)
    make_old(stand)
    stand.write(1, 1)
    stand.micro_batch(1, 1)
    stand.holds((0, 0), (0, 1), (1, 0))


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_another_number_of_tasks_goes_on_if_none_was_committed(place: Place, tasks: int) -> None:
    stand = Stand(place)
    for number in range(3):
        stand.write(0, number)
    left = stand.messages[2].open
    assert left is not None
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.ENDING))
    rows = [value for number in range(3) for value in values_of(0, number)]
    stand.said.clear()
    for number in range(tasks):
        stand.write(0, number, values=rows[number::tasks])
    stand.finish(0)
    with pytest.raises(Rejected):  # the first driver wakes up, and ends what it was told of
        place.client.run(commit(place, *left.transaction))
    stand.micro_batch(1, 3)
    stand.holds((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("tasks", "point"),
    [
        (1, Point.ENDING),
        (1, Point.ENDED),
        (3, Point.ENDING),
        (3, Point.BETWEEN),
        (3, Point.ENDED),
    ],
)
def test_a_driver_that_wakes_while_one_with_another_number_of_tasks_ends_commits_nothing(
    place: Place, tasks: int, point: Point, version: int
) -> None:
    """Its tasks found nothing written. Since then the tasks of the other driver have taken their
    ids over, so what its tasks found says nothing about what is committed now."""
    stand = Stand(place)
    rows = [*values_of(0, 0), *values_of(0, 1)]

    def write_again() -> None:
        stand.said.clear()
        for number in range(tasks):
            stand.write(0, number, values=rows[number::tasks])

    with changed_answers(place, version) as (late, _):
        for number in (1, 0):  # the driver ends the one that began first
            stand.write(0, number, client=late)
        said = stand.messages
        write_again()
        with pytest.raises(Died):
            stand.finish(0, reached=dies_at(point))
        with pytest.raises(SinkError):
            Committer(late, stand.options(), stand.sink).finish(Batch(QUERY, 0), said)
    write_again()
    stand.finish(0)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_that_wakes_while_one_with_other_rows_ends_commits_nothing(
    place: Place, version: int
) -> None:
    """Each has a copy of one checkpoint, and both have planned the next micro-batch since. If each
    committed one of the two parts, neither could ever go on."""
    stand = Stand(place)
    with changed_answers(place, version) as (late, _):
        stand.write(0, 1, client=late, values=[b"of the late driver"])
        of_late = stand.said[1]
        for number in (1, 0):
            stand.write(0, number)
        messages = stand.messages
        stand.write(0, 0, client=late, values=[b"of the late driver", b"as well"])
        began_first = stand.said[0]
        assert began_first.open is not None
        began_first = replace(began_first, open=began_first.open._replace(began_ms=0))
        stand.said.update(enumerate(messages))
        with pytest.raises(Died):
            stand.finish(0, reached=dies_at(Point.BETWEEN))
        with pytest.raises(SinkError, match="another driver, with other rows or another number of"):
            Committer(late, stand.options(), stand.sink).finish(
                Batch(QUERY, 0), [began_first, of_late]
            )
    stand.micro_batch(0, 2)
    stand.holds((0, 0), (0, 1))


def test_fewer_tasks_are_refused_if_a_part_that_they_do_not_have_is_committed(
    place: Place,
) -> None:
    stand = Stand(place)
    for number in (2, 0, 1):  # the driver ends the one that began first
        stand.write(0, number)
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.BETWEEN))
    stand.said.clear()
    for number in (0, 1):
        stand.write(0, number)
    with pytest.raises(SinkError, match="was partly committed by 3 tasks, and now has 2"):
        stand.finish(0)
    stand.micro_batch(0, 3)
    stand.holds((0, 0), (0, 1), (0, 2))


def test_another_number_of_tasks_after_an_interrupted_end_is_refused(place: Place) -> None:
    stand = Stand(place)
    for number in range(3):
        stand.write(0, number)
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.BETWEEN))
    stand.said.clear()
    for number in (0, 1):
        stand.write(0, number)
    with pytest.raises(SinkError, match="was partly committed by 3 tasks, and now has 2"):
        stand.finish(0)
    stand.micro_batch(0, 3)
    stand.holds((0, 0), (0, 1), (0, 2))


def test_an_interrupted_end_is_finished_before_the_delivery_is_switched(place: Place) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.BETWEEN))
    with pytest.raises(SinkError, match=r"finish it with tidelog\.delivery=exactly-once"):
        stand.write_whole(0, b"all")
    stand.micro_batch(0, 2)
    assert stand.write_whole(1, b"whole").rows == 1
    stand.micro_batch(2, 2)
    tasks = [(0, 0), (0, 1), (2, 0), (2, 1)]
    stand.holds_values([b"whole", *(value for task in tasks for value in values_of(*task))])


@pytest.mark.parametrize("parts", [1, 3])
def test_the_delivery_is_switched_if_no_task_was_committed(place: Place, parts: int) -> None:
    stand = Stand(place)
    for number in (0, 1):
        stand.write(0, number)
    left = stand.messages[1].open
    assert left is not None
    with pytest.raises(Died):
        stand.finish(0, reached=dies_at(Point.ENDING))
    assert stand.write_whole(0, b"all", parts=parts).rows == 1
    with pytest.raises(Rejected):  # the first driver wakes up, and ends what it was told of
        place.client.run(commit(place, *left.transaction))
    stand.micro_batch(1, 2)
    stand.holds_values([b"all", *values_of(1, 0), *values_of(1, 1)])


@pytest.mark.parametrize("point", [Point.BEFORE, Point.MID, Point.AFTER])
def test_a_driver_that_dies_writing_a_whole_micro_batch_is_followed_by_tasks(
    place: Place, point: Point
) -> None:
    """It leaves a transaction of the sink's own id open, which the tasks or the driver end."""
    stand = Stand(place)
    stand.write_whole(0, b"zero")
    options = {name.replace("_", "."): value for name, value in stand.given.items()}
    options["tidelog.delivery"] = "exactly-once-atomic"
    with attempts({"kafka.bootstrap.servers": place.bootstrap, **options}, QUERY) as play:
        assert play.whole(1, point.value) == {"signal": signal.SIGKILL}
    is_there = point is Point.AFTER
    assert [stand.write(1, number).skipped for number in (0, 1)] == [is_there, is_there]
    stand.finish(1)
    stand.holds_values([b"zero", *values_of(1, 0), *values_of(1, 1)])
