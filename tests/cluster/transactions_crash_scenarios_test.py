"""Named scenarios of transactions whose coordinator dies or stands still at a moment of their way,
out of single requests.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, fresh_topic
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import (
    AGAIN,
    LATE,
    RawProducer,
    committed_offset,
    coordinator,
    end_of,
    leader,
)
from harness.clients.transactional import Producers
from harness.faults.mortal_cluster import (
    FIRST,
    OFFSET,
    SECOND,
    MortalCluster,
    Scene,
    mortal_cluster,
    placed_topic,
)
from harness.faults.mortals import ME, Trap, When
from harness.processes.cluster import WAIT_S, Cluster, until
from harness.processes.transaction_checks import Marker, wrong_transactions
from tidelog.tools.supervisor import proc
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k27_write_txn_markers as k27

pytestmark = pytest.mark.slow

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
OLD_OFFSET = 3
TIMEOUTS_MS = (2_000, 8_000, 30_000)
"""For a transaction whose time runs out in a test, and that has to come to its end before."""


@pytest.fixture(scope="module")
def mortals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalCluster]:
    with mortal_cluster(tmp_path_factory.mktemp("crash-scenarios")) as cluster:
        with Producers(cluster.bootstrap, "confluent-kafka") as producers:
            producers.make("the first")  # makes the topics
        yield cluster
        assert "crashed" not in cluster.logs()


def begun(mortals: MortalCluster) -> tuple[Scene, RawProducer]:
    """A transaction that writes to p0 at 10, to p1 at 20, and commits 5."""
    scene, writer = before_it(mortals)
    until(lambda: writer.add(scene.topics[0]) not in AGAIN, "the next one begins")
    assert write(scene, writer, OFFSET) is ErrorCode.NONE
    return scene, writer


def before_it(mortals: MortalCluster) -> tuple[Scene, RawProducer]:
    """One that was committed, with the offset 3: it tells the epoch of the coordinator."""
    scene = Scene(mortals)
    first, second = scene.topics
    plain = Confluent(mortals.bootstrap)
    plain.produce(first, [Record(b"plain")] * 8)
    plain.produce(second, [Record(b"plain")] * 18)
    writer = RawProducer(mortals.bootstrap, scene.name).init()
    assert write(scene, writer, OLD_OFFSET) is ErrorCode.NONE
    assert writer.end(committed=True) is ErrorCode.NONE
    until(lambda: ended(scene) == {(first, 10), (second, 20)}, "its markers are there")
    return scene, writer


def write(scene: Scene, writer: RawProducer, offset: int) -> ErrorCode:
    """To both topics, and the group's offset; how the first step that failed did."""
    first, second = scene.topics
    steps: tuple[Callable[[], ErrorCode], ...] = (
        partial(writer.add, first),
        lambda: writer.send(first, writer.batch(first, FIRST)),
        partial(writer.add, second),
        lambda: writer.send(second, writer.batch(second, FIRST)),
        partial(writer.add_offsets, scene.group),
        partial(writer.commit_offset, scene.group, first, offset),
    )
    return next((code for step in steps if (code := step())), ErrorCode.NONE)


def ended(scene: Scene) -> set[tuple[str, int]]:
    return {(topic, end_of(scene.cluster.bootstrap, topic)) for topic in scene.topics}


@pytest.mark.parametrize(
    ("step", "when", "news"),
    [
        pytest.param("marker", When.SAID, (1, 1, 1), id="before any marker"),
        pytest.param("marker p0", When.COMMITTED, (0, 1, 1), id="after the marker of p0 alone"),
        pytest.param("Complete", When.SAID, (0, 0, 0), id="after all, before COMPLETE"),
    ],
)
def test_5_14_coordinator_crash_after_prepare(
    mortals: MortalCluster, step: str, when: When, news: tuple[int, int, int]
) -> None:
    """What was prepared is committed by the next coordinator, whose epoch the markers have that it
    wrote; each partition has one.
    """
    scene, writer = begun(mortals)
    first, second = scene.topics
    if step == "marker p0":
        step = f"marker {first}"
        # One broker leads both of the others: their markers go in one message.
        mortals.set_trap(Trap(f"marker {second}", When.SAID, loses=True))
    dead = scene.set_trap(step, when, "coordinator")
    assert writer.end(committed=True) in {*AGAIN, ErrorCode.NONE}
    until(lambda: writer.end(committed=True) is ErrorCode.NONE, "asked again, it is committed")
    scene.settle()
    scene.check_sprang(dead)
    markers = markers_of(scene, writer)
    assert all(one.committed for one in chain(*markers))
    assert [[one.offset for one in ours] for ours in markers[:2]] == [[9, 11], [19, 21]]
    before = markers[0][0].coordinator_epoch
    assert [one[-1].coordinator_epoch - before for one in markers] == list(news)
    assert committed_offset(mortals.bootstrap, scene.group, first) == OFFSET
    if news[0]:
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert marked(mortals, writer, first, coordinator_epoch=before) is fenced
        assert ended(scene) == {(first, 12), (second, 22)}


def markers_of(scene: Scene, writer: RawProducer) -> list[list[Marker]]:
    """Of both of its transactions, in p0, p1 and the group's partition."""
    told = scene.told()
    assert wrong_transactions(list(told.values()), bumps=False) == []
    found = [
        [one for one in told[place].markers if one.producer_id == writer.producer_id]
        for place in scene.places()
    ]
    assert [len(ours) for ours in found] == [2, 2, 2]
    return found


def marked(
    mortals: MortalCluster, writer: RawProducer, topic: str, coordinator_epoch: int
) -> ErrorCode:
    """What a coordinator of that epoch is told that would abort."""
    marker = k27.WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        transaction_result=False,
        topics=[k27.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    with RawClient(leader(mortals.bootstrap, topic)) as client:
        answer = client.ask(k27.API, 1, k27.WriteTxnMarkersRequest(markers=[marker]))
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_5_14_coordinator_crash_before_prepare(mortals: MortalCluster) -> None:
    """Its producer hears that it is not known, and says nothing more: the time-out aborts it."""
    for timeout_ms in TIMEOUTS_MS:
        scene, _ = before_it(mortals)
        writer = RawProducer(mortals.bootstrap, scene.name, timeout_ms).init()
        told = write(scene, writer, OFFSET)
        if told is ErrorCode.NONE:
            mortals.set_trap(Trap("Prepare", When.SAID, (ME,)))
            told = writer.end(committed=True)
        if told not in LATE:
            break  # else its time was up before, on a busy machine
    assert told in AGAIN
    assert mortals.all_sprang()
    scene.settle(within_s=timeout_ms / 1_000 + WAIT_S)
    told_by = scene.told()
    assert wrong_transactions(list(told_by.values()), bumps=False) == []
    assert scene.ends(told_by) == {place: [True, False] for place in told_by}
    for topic, plain in zip(scene.topics, (8, 18), strict=True):
        assert len(told_by[f"{topic}-0"].committed) == plain + 1
    found = committed_offset(mortals.bootstrap, scene.group, scene.topics[0])
    assert found == OLD_OFFSET


def test_a_paused_coordinator_that_returns_does_what_it_was_about_to(
    mortals: MortalCluster,
) -> None:
    """It stood still with the outcome decided and not yet said, and nobody replaced it: the
    supervisor stood still too, as on a machine that was frozen.
    """
    scene, writer = begun(mortals)
    pid, supervisor = mortals.coordinator_pid(), mortals.runs[-1].pid
    mortals.set_trap(Trap("Prepare", When.SAID, (supervisor, ME), signal.SIGSTOP))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(writer.end, committed=True)
        try:
            until(mortals.all_sprang, "it came to that moment")
            until(lambda: proc.is_stopped(pid), "it stands still")
            Confluent(mortals.bootstrap).produce(scene.topics[0], [Record(b"meanwhile")])
            assert not answer.done()
        finally:
            for one in (pid, supervisor):
                os.kill(one, signal.SIGCONT)
        assert answer.result() in {*AGAIN, ErrorCode.NONE}
    until(lambda: writer.end(committed=True) is ErrorCode.NONE, "it is committed")
    assert mortals.coordinator_pid() == pid, "nobody took its place"
    scene.settle()
    told = scene.told()
    assert wrong_transactions(list(told.values()), bumps=False) == []
    assert scene.ends(told) == {place: [True, True] for place in told}
    assert committed_offset(mortals.bootstrap, scene.group, scene.topics[0]) == OFFSET


@pytest.mark.parametrize(
    "when", [When.SAID, When.BEFORE, When.APPENDED], ids=lambda when: when.name
)
def test_the_first_transaction_of_a_cluster_outlives_who_dies_over_its_first_record(
    tmp_path: Path, when: When
) -> None:
    """Said: the coordinator. Before and behind the append: the leader of the partition."""
    topic, group = fresh_topic(), fresh_topic("group")
    with mortal_cluster(tmp_path) as cluster:
        Confluent(cluster.bootstrap).create_topic(topic)
        cluster.set_trap(Trap("Begin", when, (ME,)))
        with Producers(cluster.bootstrap, "confluent-kafka") as producers:
            producer = producers.make("the first")
            assert cluster.all_sprang()
            producer.begin()
            producer.produce(topic, FIRST)
            producer.send_offset(topic, OFFSET, group)
            producer.commit()
        until(lambda: end_of(cluster.bootstrap, topic) == 2, "its marker is there")
        until(
            lambda: committed_offset(cluster.bootstrap, group, topic) == OFFSET, "so is its offset"
        )
        assert "crashed" not in cluster.logs()


def test_a_state_partition_that_nobody_leads_waits_alone(tmp_path: Path) -> None:
    settings = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
    }
    with Cluster(tmp_path, brokers=3, settings=settings) as cluster:
        addresses = cluster.bootstrap.split(",")
        dying, other = on_two_brokers(cluster.bootstrap)
        down = addresses.index(coordinator(cluster.bootstrap, dying.name))
        topic = placed_topic(cluster.bootstrap, (down + 1) % len(addresses))
        alive = dying.bootstrap = other.bootstrap = addresses[(down + 1) % len(addresses)]
        dying.write(topic, FIRST)
        cluster.done("broker", "kill", str(down))
        until(lambda: answer_about(alive, dying.name) is AWAY, "nobody speaks for it")
        other.write(topic, SECOND)
        assert other.end(committed=True) is ErrorCode.NONE
        until(lambda: end_of(alive, topic, isolation=0) == 3, "the other one is complete")
        assert end_of(alive, topic) == 0, "and this one open"
        cluster.done("broker", "start", str(down))
        until(lambda: answer_about(alive, dying.name) is ErrorCode.NONE, "it is led again")
        until(lambda: dying.end(committed=True) is ErrorCode.NONE, "and comes to its end")
        until(lambda: end_of(alive, topic) == 4, "as the partition shows")


def on_two_brokers(bootstrap: str) -> tuple[RawProducer, RawProducer]:
    """Two ids that brokers of their own speak for."""
    first = RawProducer(bootstrap, "id-0").init()
    for number in range(1, 100):
        name = f"id-{number}"
        if coordinator(bootstrap, name) != coordinator(bootstrap, first.name):
            return first, RawProducer(bootstrap, name).init()
    raise AssertionError("one broker speaks for all")


def answer_about(bootstrap: str, name: str) -> ErrorCode:
    """What is said to somebody who looks for who speaks for an id."""
    with RawClient(bootstrap) as client:
        request = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        (row,) = client.ask(k10.API, 4, request).coordinators
    return ErrorCode(row.error_code)
