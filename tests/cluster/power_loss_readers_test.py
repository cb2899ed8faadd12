"""Named scenario 5.20, its readers (R6): a group committed 899, and a power loss of all left less.

Told is told whether the log is still shorter when the consumer is back, or has grown over 899
again. Brokers tell everybody who gives an epoch. What clients do with what they could know differs,
and is held here, too: docs/power-loss.md has it as a table.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from harness.clients.fetch_raw import FetchRefusedError, fetch_once
from harness.clients.java import CONSOLE_CONSUMER
from harness.clients.kafka_tools import KafkaTools
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.clients.returning import (
    WAIT_S,
    ByAiokafka,
    ByConfluent,
    ByKafkaPython,
    Client,
    Returning,
    Stayed,
    Staying,
)
from harness.clients.transaction_raw import coordinator, leader
from harness.faults.paced import PacedSender, command_here, disk_rows, window_of
from harness.faults.power import create, start_all, whole_log_of
from harness.processes.cluster import Cluster, until
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.consumer import Consumer, Reset
from tidelog.clients.settings import ConsumerSettings
from tidelog.kernel.ids import Offset, Partition
from tidelog.kernel.instant import Instant, s
from tidelog.tools.connecting import connected
from tidelog.tools.output import Target
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k23_offset_for_leader_epoch as k23

pytestmark = pytest.mark.slow

FLUSHED, SENDS, COMMITTED, GROWN = 800, 900, 899, 1_100
EPOCH = 0
"""In which all 900 were written."""
SHORT, LONG = "short", "long"
"""Topics: one is still shorter than 899 when its readers are back, one has grown over it."""
SETTINGS = {
    "flush.policy": "commit",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
CLIENTS: dict[str, Client] = {
    one.name: one for one in (ByConfluent(), ByKafkaPython(), ByAiokafka())
}
STAYING: dict[str, Staying] = {one.name: one for one in (ByConfluent(), ByKafkaPython())}
RESETS = ("none", "earliest")
SEEDS = range(500)
OURS = (LONG, Partition(0))


@dataclass(frozen=True, slots=True)
class Lost:
    """Both topics, since all is back."""

    cluster: Cluster
    left: dict[str, int]
    """How many records the power loss left."""
    stayed: dict[tuple[str, str], Stayed]
    """Consumers of the long one that were there all the time, by client and what to do."""
    ours: Consumer
    """The same, of `tidelog.clients`."""

    def who(self, client: str, reset: str = "none") -> Returning:
        return Returning(self.cluster.bootstrap, client, reset)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    folder = tmp_path_factory.mktemp("readers")
    with Cluster(folder, brokers=3, settings=SETTINGS) as cluster, ExitStack() as undo:
        for topic in (SHORT, LONG):
            write(cluster, topic)
            for name, client in CLIENTS.items():
                who = Returning(cluster.bootstrap, name)
                client.commits(who, topic, COMMITTED - 20, COMMITTED)
        stayed = {
            (name, reset): client.stays(
                Returning(cluster.bootstrap, f"{name} stays", reset), LONG, SENDS
            )
            for name, client in STAYING.items()
            for reset in RESETS
        }
        for one in stayed.values():
            undo.callback(one.close)
        ours = undo.enter_context(our_consumer(cluster))
        seed = shortening(cluster)
        command_here(cluster, "chaos", "power-loss", "--all", "--seed", str(seed))
        start_all(cluster)
        left = {topic: len(whole_log_of(cluster, topic)) for topic in (SHORT, LONG)}
        assert all(FLUSHED <= end < COMMITTED for end in left.values()), left
        append(cluster, LONG, left[LONG], GROWN)
        yield Lost(cluster, left, stayed, ours)


def write(cluster: Cluster, topic: str) -> None:
    """900 records, of which 800 are on stable storage of all."""
    configs = {"flush.policy": "messages", "flush.messages": str(FLUSHED)}
    create(cluster, topic, {"min.insync.replicas": "2", **configs})
    cluster.done("wait", "isr", topic)
    sender = PacedSender(cluster, topic, most=FLUSHED, rate=100_000)
    with sender.sending():
        sender.hear(FLUSHED)
    until(
        lambda: {row["durable_offset"] for row in disk_rows(cluster, topic)} == {FLUSHED},
        f"the first {FLUSHED} are flushed",
    )
    append(cluster, topic, FLUSHED, SENDS)


def append(cluster: Cluster, topic: str, start: int, stop: int) -> None:
    with RawClient(leader(cluster.bootstrap, topic)) as raw:
        for number in range(start, stop):
            answer = produce(raw, topic, batch_of(b"%d" % number))
            assert (answer.error_code, answer.base_offset) == (0, number)


@contextmanager
def our_consumer(cluster: Cluster) -> Iterator[Consumer]:
    """It has read all of the long topic."""
    with connected(Target(bootstrap=cluster.bootstrap)) as client:
        client.run(refresh(client.view, {LONG}))
        consumer = Consumer(client, ConsumerSettings())
        consumer.assign({OURS: Offset(0)})
        while consumer.position(OURS) < SENDS:
            next_of(consumer)
        yield consumer


def next_of(consumer: Consumer) -> int:
    """The first offset that it is given; all that came with it is read."""
    found = consumer.poll(Instant(time.monotonic_ns() + s(int(WAIT_S))))
    assert found is not None, "silence"
    first, *_ = found.records()
    consumer.consumed(found)
    return first.offset


def shortening(cluster: Cluster) -> int:
    """A seed by which no replica keeps 899 records; it is the same each time."""
    for seed in SEEDS:
        words = ("chaos", "power-loss", "--all", "--dry-run", "--seed", str(seed))
        brokers = command_here(cluster, *words)["processes"][: cluster.brokers]
        windows = [window_of(one, topic) for one in brokers for topic in (SHORT, LONG)]
        if all(window is not None and window["left"] < COMMITTED for window in windows):
            return seed
    raise AssertionError("no seed takes enough")


# -- what brokers say ---------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [SHORT, LONG])
def test_whoever_gives_an_epoch_is_told_where_the_logs_part(lost: Lost, topic: str) -> None:
    bootstrap, left = lost.cluster.bootstrap, lost.left[topic]
    group = "confluent-kafka"
    wanted = k09.OffsetFetchRequestGroup(
        group_id=group, topics=[k09.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    with RawClient(coordinator(bootstrap, group, kind=0)) as raw:
        (row,) = raw.ask(k09.API, 8, k09.OffsetFetchRequest(groups=[wanted])).groups
    (found,) = row.topics[0].partitions
    assert (found.committed_offset, found.committed_leader_epoch) == (COMMITTED, EPOCH)

    with RawClient(leader(bootstrap, topic)) as raw:
        partition = k23.OffsetForLeaderPartition(partition=0, leader_epoch=EPOCH)
        topics = [k23.OffsetForLeaderTopic(topic=topic, partitions=[partition])]
        request = k23.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        (end,) = raw.ask(k23.API, 4, request).topics[0].partitions
        assert (end.error_code, end.leader_epoch, end.end_offset) == (0, EPOCH, left)
        told = fetched(raw, topic, last_fetched=EPOCH)
        assert told.diverging_epoch is not None
        parts = told.diverging_epoch
        assert (told.error_code, parts.epoch, parts.end_offset) == (0, EPOCH, left)
        assert fetched(raw, topic, current=EPOCH).error_code == ErrorCode.FENCED_LEADER_EPOCH


def fetched(
    raw: RawClient, topic: str, *, current: int = -1, last_fetched: int = -1
) -> k01.PartitionData:
    row = k01.FetchPartition(
        partition=0,
        current_leader_epoch=current,
        last_fetched_epoch=last_fetched,
        fetch_offset=COMMITTED,
        partition_max_bytes=1 << 20,
    )
    topics = [k01.FetchTopic(topic=topic, partitions=[row])]
    request = k01.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    (found,) = raw.ask(k01.API, 12, request).responses[0].partitions
    assert isinstance(found, k01.PartitionData)
    return found


def test_whoever_gives_none_is_told_while_the_log_is_shorter(lost: Lost) -> None:
    """And nobody can tell him once it has grown."""
    with RawClient(leader(lost.cluster.bootstrap, SHORT)) as raw:
        with pytest.raises(FetchRefusedError) as refused:
            fetch_once(raw, SHORT, COMMITTED)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with RawClient(leader(lost.cluster.bootstrap, LONG)) as raw:
        assert fetch_once(raw, LONG, COMMITTED)[0].offset == COMMITTED


# -- what clients do ----------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_a_new_consumer_of_the_group_is_told_while_the_log_is_shorter(
    lost: Lost, client: str
) -> None:
    told = CLIENTS[client].returns(lost.who(client), SHORT)
    assert isinstance(told, str)
    assert "out of range" in told.lower() or "OutOfRange" in told
    assert CLIENTS[client].returns(lost.who(client, "earliest"), SHORT) == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_these_clients_do_not_check_the_epoch_that_a_group_committed(
    lost: Lost, client: str
) -> None:
    """The broker gives it to them with the offset. Whoever wants to be told once the log has grown
    over it checks it himself, or takes a client that does."""
    for reset in RESETS:
        assert CLIENTS[client].returns(lost.who(client, reset), LONG) == COMMITTED


def test_confluent_kafka_checks_the_epoch_it_is_given(lost: Lost) -> None:
    client = ByConfluent()
    told = client.returns_with_epoch(lost.who(client.name), LONG)
    assert f"log truncation detected at offset {COMMITTED}" in str(told)
    assert client.returns_with_epoch(lost.who(client.name, "earliest"), LONG) == lost.left[LONG]


def test_java_checks_the_epoch_that_a_group_committed(lost: Lost) -> None:
    """Whoever committed it: it is told where the logs part."""
    bootstrap = lost.cluster.bootstrap
    words = ["--bootstrap-server", bootstrap, "--topic", LONG, "--group", "kafka-python"]
    for one in ("auto.offset.reset=none", "enable.auto.commit=false"):
        words += ["--command-property", one]
    with KafkaTools(bootstrap) as tools:
        said = tools.run(CONSOLE_CONSUMER, *words, "--timeout-ms", "30000")
    assert (said.out, "LogTruncationException" in said.err) == ("", True), said
    assert f"{LONG}-0=OffsetAndMetadata{{offset={lost.left[LONG]}, leaderEpoch={EPOCH}" in said.err


@pytest.mark.parametrize("client", STAYING)
def test_a_consumer_that_was_there_is_told_though_the_log_has_grown(
    lost: Lost, client: str
) -> None:
    """It sees that the leader's epoch is another one, and asks."""
    told = str(lost.stayed[client, "none"].goes_on())
    assert "truncation" in told.lower()
    assert str(lost.left[LONG]) in told
    assert lost.stayed[client, "earliest"].goes_on() == lost.left[LONG]


def test_our_own_consumer_goes_back_to_where_the_logs_part_and_says_so(lost: Lost) -> None:
    left = lost.left[LONG]
    assert next_of(lost.ours) == left
    assert lost.ours.resets == [Reset(OURS, Offset(SENDS), Offset(left))]
