"""Named scenarios of transactions, out of single requests: what comes late changes nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import (
    ADDING_PRODUCE,
    AGAIN,
    BUMPING_END,
    RawProducer,
    committed_offset,
    end_of,
    known_topic,
    said_in_the_end,
    too_slow,
    until_known,
)
from harness.clients.transactional import READS
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66

pytestmark = pytest.mark.slow

LAST = b"the last one"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("scenarios"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic(three: Cluster) -> str:
    return known_topic(three.bootstrap)


def committed(three: Cluster, topic: str, *values: bytes) -> None:
    """Readers of committed records get these, and come to the end."""
    until(
        lambda: end_of(three.bootstrap, topic) == end_of(three.bootstrap, topic, isolation=0),
        f"nothing of {topic} hangs",
    )
    Confluent(three.bootstrap).produce(topic, [Record(LAST)])
    found = READS["confluent-kafka"](three.bootstrap, topic, len(values) + 1)
    assert found == [*values, LAST]


def producer(three: Cluster, topic: str) -> RawProducer:
    return RawProducer(three.bootstrap, f"{topic}-id")


def test_5_13_zombie_producer(three: Cluster, topic: str) -> None:
    """One that was asleep while another began with its id writes and ends nothing more."""
    zombie = producer(three, topic).init()
    zombie.write(topic, b"x")
    owner = producer(three, topic).init()
    assert owner.producer_id == zombie.producer_id
    assert owner.epoch > zombie.epoch
    owner.write(topic, b"y")
    assert owner.end(committed=True) is ErrorCode.NONE
    late = zombie.batch(topic, b"too late")
    assert zombie.send(topic, late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.add(topic) is ErrorCode.PRODUCER_FENCED
    assert zombie.add_offsets("g") is ErrorCode.PRODUCER_FENCED
    assert zombie.end(committed=True) is ErrorCode.PRODUCER_FENCED
    committed(three, topic, b"y")


@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_5_15_late_produce_hangs_lso(
    three: Cluster, topic: str, version: int, code: ErrorCode
) -> None:
    """A batch that comes after its transaction's marker begins no other one. (KAFKA-14402)"""
    writer = producer(three, topic).init()
    writer.write(topic, b"in time")
    late = writer.batch(topic, b"too late")
    assert writer.end(committed=False) is ErrorCode.NONE
    until(lambda: end_of(three.bootstrap, topic) == 2, "the marker is there")
    assert writer.send(topic, late, version=version) is code
    assert end_of(three.bootstrap, topic) == end_of(three.bootstrap, topic, isolation=0) == 2
    committed(three, topic)


def wrote(writer: RawProducer, topic: str, value: bytes) -> None:
    """As a client of version 2 does it."""
    batch = writer.batch(topic, value)
    code = said_in_the_end(lambda: writer.send(topic, batch, version=ADDING_PRODUCE))
    assert code is ErrorCode.NONE


@pytest.mark.parametrize("wrote_before", [True, False])
def test_5_15_late_produce_hangs_lso_under_version_2(
    three: Cluster, topic: str, *, wrote_before: bool
) -> None:
    """Its epoch is over: the partition knows that by the marker, or the coordinator says so."""
    writer = producer(three, topic).init()
    if wrote_before:
        wrote(writer, topic, b"in time")
    late = writer.batch(topic, b"too late")
    assert writer.end(committed=False, version=BUMPING_END) is ErrorCode.NONE
    end = 2 if wrote_before else 0
    until(lambda: end_of(three.bootstrap, topic) == end, "what was written is ended")
    code = writer.send(topic, late, version=ADDING_PRODUCE)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_of(three.bootstrap, topic) == end_of(three.bootstrap, topic, isolation=0) == end
    committed(three, topic)


def test_5_16_late_endtxn_hits_next_txn(three: Cluster, topic: str) -> None:
    """Whatever was held of the first transaction: the second one is whole."""
    writer = producer(three, topic).init()
    held_end = writer.end_request(committed=False)
    held_add = writer.add_request(topic)
    wrote(writer, topic, b"first")
    held_batch = writer.batch(topic, b"of the first")
    assert writer.end(committed=False, version=BUMPING_END) is ErrorCode.NONE
    wrote(writer, topic, b"second")
    for version in (BUMPING_END, BUMPING_END - 1):
        answer = writer.ask(k26.API, version, held_end)
        assert ErrorCode(answer.error_code) is ErrorCode.PRODUCER_FENCED
    assert writer.added(held_add) is ErrorCode.PRODUCER_FENCED
    for version in (ADDING_PRODUCE, ADDING_PRODUCE - 1):
        code = writer.send(topic, held_batch, version=version)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.end(committed=True, version=BUMPING_END) is ErrorCode.NONE
    committed(three, topic, b"second")


def test_what_version_1_cannot_tell_apart(three: Cluster, topic: str) -> None:
    """Both transactions have one epoch: the abort of the first takes the second away."""
    writer = producer(three, topic).init()
    held_end = writer.end_request(committed=False)
    writer.write(topic, b"first")
    assert writer.end(committed=False) is ErrorCode.NONE
    writer.write(topic, b"second")
    assert writer.ask(k26.API, BUMPING_END - 1, held_end).error_code == 0
    assert writer.end(committed=True) is ErrorCode.INVALID_TXN_STATE
    committed(three, topic)


def test_a_late_batch_of_an_aborted_transaction_that_wrote_nothing(
    three: Cluster, topic: str
) -> None:
    writer = producer(three, topic).init()
    assert writer.add(topic) is ErrorCode.NONE
    late = writer.batch(topic, b"too late")
    assert writer.end(committed=False) is ErrorCode.NONE
    until(lambda: writer.send(topic, late) is ErrorCode.TRANSACTION_ABORTABLE, "it is refused")
    committed(three, topic)


def test_a_partition_that_was_not_added_takes_nothing(three: Cluster, topic: str) -> None:
    writer = producer(three, topic).init()
    assert writer.send(topic, writer.batch(topic, b"x")) is ErrorCode.TRANSACTION_ABORTABLE
    committed(three, topic)


def test_nor_does_a_group_that_was_not_added(three: Cluster, topic: str) -> None:
    writer = producer(three, topic).init()
    group = f"{topic}-group"
    writer.write(topic, b"x")
    assert writer.commit_offset(group, topic, 5) is ErrorCode.TRANSACTION_ABORTABLE
    assert writer.commit_offset(group, topic, 5, version=3) is ErrorCode.INVALID_TXN_STATE
    assert writer.add_offsets(group) is ErrorCode.NONE
    assert writer.commit_offset(group, topic, 5) is ErrorCode.NONE
    assert committed_offset(three.bootstrap, group, topic) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert writer.end(committed=True) is ErrorCode.NONE
    until(lambda: committed_offset(three.bootstrap, group, topic) == 5, "the group is at 5")


def test_late_offsets_begin_nothing(three: Cluster, topic: str) -> None:
    writer = producer(three, topic).init()
    group = f"{topic}-group"
    assert writer.add_offsets(group) is ErrorCode.NONE
    assert writer.commit_offset(group, topic, 5) is ErrorCode.NONE
    assert writer.end(committed=False) is ErrorCode.NONE
    until(lambda: committed_offset(three.bootstrap, group, topic) == -1, "nothing is committed")
    assert writer.commit_offset(group, topic, 6) is ErrorCode.TRANSACTION_ABORTABLE
    assert committed_offset(three.bootstrap, group, topic) == -1


def test_whoever_is_too_slow_is_fenced(three: Cluster) -> None:
    writer, topic = too_slow(three.bootstrap)
    until(lambda: end_of(three.bootstrap, topic) == 2, "its marker is there")
    assert writer.end(committed=True) in {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
    late = writer.batch(topic, b"too late")
    assert writer.send(topic, late) is ErrorCode.INVALID_PRODUCER_EPOCH
    committed(three, topic)


def test_5_16_late_endtxn_of_a_client_that_has_taken_the_next_epoch(
    three: Cluster, topic: str
) -> None:
    """In version 1, one that was not told how its transaction ended begins anew as who it was: what
    it sent before changes nothing.
    """
    writer = producer(three, topic).init()
    writer.write(topic, b"of the first")
    held_end, held_add = writer.end_request(committed=False), writer.add_request(topic)
    held_batch = writer.batch(topic, b"too late")
    assert writer.end(committed=False) is ErrorCode.NONE
    writer.init(says_who=True)
    writer.write(topic, b"of the second")
    assert writer.ask(k26.API, 3, held_end).error_code == ErrorCode.PRODUCER_FENCED
    assert writer.added(held_add) is ErrorCode.PRODUCER_FENCED
    assert writer.send(topic, held_batch) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.end(committed=True) is ErrorCode.NONE
    committed(three, topic, b"of the second")


def test_each_broker_tells_of_the_ids_it_speaks_for(three: Cluster, topic: str) -> None:
    writer = producer(three, topic).init()
    writer.write(topic, b"x")
    found = [row for broker in three.bootstrap.split(",") for row in listed(broker, writer.name)]
    assert found == [(writer.name, writer.producer_id, "Ongoing")], "of each id once"
    described = writer.ask(
        k65.API, 0, k65.DescribeTransactionsRequest(transactional_ids=[writer.name])
    )
    (row,) = described.transaction_states
    assert (row.error_code, row.transaction_state, row.producer_id) == (
        ErrorCode.NONE,
        "Ongoing",
        writer.producer_id,
    )
    assert [(one.topic, one.partitions) for one in row.topics] == [(topic, [0])]
    assert writer.end(committed=False) is ErrorCode.NONE


def listed(broker: str, name: str) -> list[tuple[str, int, str]]:
    """What one broker lists of an id."""
    with RawClient(broker) as client:
        answer = client.ask(k66.API, 0, k66.ListTransactionsRequest())
    assert not answer.error_code
    rows = answer.transaction_states
    return [
        (row.transactional_id, row.producer_id, row.transaction_state)
        for row in rows
        if row.transactional_id == name
    ]


@pytest.mark.parametrize("how", [Cluster.stop, Cluster.kill_everything])
def test_an_open_transaction_outlives_the_whole_cluster(
    tmp_path: Path, how: Callable[[Cluster], None]
) -> None:
    with Cluster(tmp_path, brokers=3) as cluster:
        topic, group = "open", "group"
        Confluent(cluster.bootstrap).create_topic(topic)
        until_known(cluster.bootstrap, topic)
        writer = RawProducer(cluster.bootstrap, "id").init()
        writer.write(topic, b"before")
        assert writer.add_offsets(group) is ErrorCode.NONE
        assert writer.commit_offset(group, topic, 5) is ErrorCode.NONE
        how(cluster)
        cluster.start()
        writer.bootstrap = cluster.bootstrap
        later = writer.batch(topic, b"after")
        until(lambda: writer.send(topic, later) is ErrorCode.NONE, "its leader is back")
        found = ErrorCode.UNSTABLE_OFFSET_COMMIT
        until(
            lambda: committed_offset(cluster.bootstrap, group, topic) is found, "they are pending"
        )
        until(lambda: writer.end(committed=True) not in AGAIN, "it is committed")
        until(lambda: committed_offset(cluster.bootstrap, group, topic) == 5, "so are its offsets")
        committed(cluster, topic, b"before", b"after")
