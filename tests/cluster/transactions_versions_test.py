"""Clients of both versions of transactions, side by side, while the cluster's level goes up and
down. Which one a client spoke stands in the log of its id.
"""

import re
from collections.abc import Iterator

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record
from harness.clients.java import Java
from harness.clients.kafka_tools import KafkaTools
from harness.clients.raw_socket import RawClient
from harness.clients.tools_jvm import run_tool
from harness.clients.transaction_raw import committed_offset, end_of, known_topic, recorded
from harness.clients.transactional import MAKERS, READS, Producers
from harness.processes.cluster import Cluster, until
from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError
from tidelog.clients.producer.transaction import Membership
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import ms
from tidelog.tools.connecting import connected
from tidelog.tools.output import Target
from tidelog.wire import records
from tidelog.wire.messages import k18_api_versions as k18

pytestmark = pytest.mark.slow

FEATURES = "org.apache.kafka.tools.FeatureCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIED = 40


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("versions"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(three: Cluster) -> Iterator[KafkaTools]:
    with KafkaTools(three.bootstrap) as found:
        yield found


@pytest.fixture
def topic(three: Cluster) -> str:
    return known_topic(three.bootstrap)


def spoken(cluster: Cluster, name: str) -> set[int]:
    """The versions in which partitions joined: 2 where no client said that they should."""
    found = recorded(cluster.bootstrap, name)
    return {one.client_version for one in found if one.state is TxnState.ONGOING}


def is_at(cluster: Cluster, topic: str, end: int) -> None:
    until(lambda: end_of(cluster.bootstrap, topic) == end, f"{topic} is stable up to {end}")


def send(producer: TransactionalProducer, topic: str, value: bytes) -> None:
    producer.send(topic, records.Record(0, 1_700_000_000_000, None, value), Partition(0))


def ours(client: Client, topic: str, timeout_ms: int = 60_000) -> TransactionalProducer:
    settings = ProducerSettings(
        transactional_id=f"{topic}-id", transaction_timeout_ns=ms(timeout_ms)
    )
    producer = TransactionalProducer(client, settings)
    producer.open(topic)
    return producer


def level(tools: KafkaTools) -> tuple[int, int]:
    """As Kafka's tool finds it: the finalized level, and the epoch of all of them."""
    said = tools.tool(FEATURES, "describe")
    (row,) = [line for line in said.splitlines() if "transaction.version" in line]
    found = re.search(r"FinalizedVersionLevel: (\d+)\s+Epoch: (\d+)", row)
    assert found is not None, row
    return int(found[1]), int(found[2])


def all_have(cluster: Cluster, wanted: int) -> None:
    """Each broker has heard of it: the tools ask any of them, and so do clients."""
    for address in cluster.bootstrap.split(","):
        until(lambda one=address: level_at(one) == wanted, f"{address} has level {wanted}")  # type: ignore[misc]  # mypy knows no default here


def level_at(address: str) -> int:
    request = k18.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    with RawClient(address) as client:
        answer = client.ask(k18.API, 4, request)
    (found,) = [one for one in answer.finalized_features if one.name == "transaction.version"]
    return int(found.max_version_level)


# -- side by side -------------------------------------------------------------------------------


@pytest.mark.parametrize("client", MAKERS)
def test_clients_that_know_only_version_1_go_on_with_it(
    three: Cluster, topic: str, client: str
) -> None:
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id")
        producer.begin()
        producer.produce(topic, b"a")
        producer.send_offset(topic, 1, f"{topic}-group")
        producer.commit()
    assert spoken(three, f"{topic}-id") == {0}
    is_at(three, topic, 2)
    assert READS[client](three.bootstrap, topic, 1) == [b"a"]


def copied(cluster: Cluster, source: str, target: str) -> str:
    """Java's producer and consumer: from one topic to another, five records a transaction."""
    Java(cluster.bootstrap)
    name = f"{target}-id"
    said = run_tool(
        COPIER,
        *("--broker-list", cluster.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", str(COPIED), "--transaction-size", "5"),
        *("--consumer-group", f"{target}-group", "--transactional-id", name),
        "--enable-random-aborts",
    )
    assert said.code == 0, said
    return name


def test_javas_own_client_says_nothing_of_partitions_and_takes_an_epoch_at_each_end(
    three: Cluster, topic: str
) -> None:
    source = f"{topic}-source"
    client = Confluent(three.bootstrap)
    client.create_topic(source)
    client.produce(source, [Record(b"%d" % number) for number in range(COPIED)])
    name = copied(three, source, topic)
    # It was answered when the outcome was certain; what follows from that may come later.
    group = f"{topic}-group"
    until(lambda: committed_offset(three.bootstrap, group, source) == COPIED, "its last marker")
    until(lambda: recorded(three.bootstrap, name)[-1].state.is_complete, "its end is complete")
    assert spoken(three, name) == {2}
    ends = [one for one in recorded(three.bootstrap, name) if one.state.is_complete]
    assert len(ends) >= COPIED // 5
    assert [one.producer_epoch for one in ends] == list(range(1, len(ends) + 1))
    found = READS["confluent-kafka"](three.bootstrap, topic, COPIED)
    assert found == [b"%d" % number for number in range(COPIED)], "aborted ones are not seen"


def test_producers_of_both_versions_take_turns_with_one_id(three: Cluster, topic: str) -> None:
    """Each locks out the one before it."""
    with connected(Target(bootstrap=three.bootstrap)) as client:
        for number in range(4):
            if number % 2:
                producer = ours(client, topic)
                producer.begin()
                send(producer, topic, b"%d" % number)
                producer.commit()
                continue
            with Producers(three.bootstrap, "confluent-kafka") as producers:
                old = producers.make(f"{topic}-id")
                old.begin()
                old.produce(topic, b"%d" % number)
                old.commit()
    assert spoken(three, f"{topic}-id") == {0, 2}
    is_at(three, topic, 8)
    found = READS["confluent-kafka"](three.bootstrap, topic, 4)
    assert found == [b"0", b"1", b"2", b"3"]


def test_our_producer_goes_on_after_its_time_was_up(three: Cluster, topic: str) -> None:
    with connected(Target(bootstrap=three.bootstrap)) as client:
        # Long enough for a broker that is held up between joining and writing.
        producer = ours(client, topic, timeout_ms=2_000)
        producer.begin()
        send(producer, topic, b"too slow")
        producer.flush()
        is_at(three, topic, 2)
        with pytest.raises(AbortableError):
            producer.commit()
        producer.abort()
        producer.begin()
        send(producer, topic, b"in time")
        producer.commit()
    is_at(three, topic, 4)
    assert READS["confluent-kafka"](three.bootstrap, topic, 1) == [b"in time"]


# -- the cluster's level ------------------------------------------------------------------------


def test_the_level_goes_down_and_up_while_transactions_run(
    three: Cluster, tools: KafkaTools, topic: str
) -> None:
    group = f"{topic}-group"
    highest, epoch = level(tools)
    assert highest == 2
    with connected(Target(bootstrap=three.bootstrap)) as client:
        producer = ours(client, topic)
        producer.begin()
        send(producer, topic, b"begun at 2")
        producer.flush()
        tools.tool(FEATURES, "downgrade", "--feature", "transaction.version=1")
        all_have(three, 1)
        lowered, later = level(tools)
        assert lowered == 1
        assert later > epoch
        producer.send_offsets({(topic, Partition(0)): 7}, Membership(group))
        producer.commit()
    until(lambda: committed_offset(three.bootstrap, group, topic) == 7, "the group is at 7")
    assert spoken(three, f"{topic}-id") == {2}
    for wanted, value in ((1, b"at 1"), (2, b"at 2")):
        if wanted != 1:
            tools.tool(FEATURES, "upgrade", "--feature", f"transaction.version={wanted}")
            all_have(three, wanted)
            assert level(tools)[0] == wanted
        with connected(Target(bootstrap=three.bootstrap)) as client:
            producer = ours(client, topic)
            before = len(recorded(three.bootstrap, f"{topic}-id"))
            producer.begin()
            send(producer, topic, value)
            producer.commit()
        (joined,) = [
            one
            for one in recorded(three.bootstrap, f"{topic}-id")[before:]
            if one.state is TxnState.ONGOING
        ]
        assert joined.client_version == (0 if wanted == 1 else 2)
    found = READS["confluent-kafka"](three.bootstrap, topic, 3)
    assert found == [b"begun at 2", b"at 1", b"at 2"]
