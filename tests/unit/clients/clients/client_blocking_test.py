"""The blocking producer and consumer over a fake network: whole stories in a few lines."""

import pytest

from harness.machines.plans import FakeNetwork, Reply
from harness.machines.toy_cluster import ToyCluster
from tidelog.clients.asking import Address, Ask, Cause
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import METADATA_OF_NOTHING, refresh
from tidelog.clients.consumer.consumer import Consumer, Reset
from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.sender import Delivered, Failed, Identity
from tidelog.clients.settings import Acks, ConsumerSettings, ProducerSettings
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import Instant, ms, s
from tidelog.wire.errors import Rejected
from tidelog.wire.records import Record

ZERO: TopicPartition = ("t", Partition(0))


def client_of(cluster: ToyCluster, delay_ns: int = 0) -> Client:
    client = Client(FakeNetwork(cluster, delay_ns), [Address("b0", 9092)])
    client.connect()
    client.run(refresh(client.view, ["t"]))
    return client


def write(client: Client, *values: bytes, settings: ProducerSettings | None = None) -> Producer:
    producer = Producer(client, settings or ProducerSettings())
    producer.open("t")
    for value in values:
        producer.send("t", Record(0, 0, None, value))
    producer.flush()
    return producer


def read(consumer: Consumer, client: Client, seconds: float = 5) -> list[bytes | None]:
    values = []
    until = Instant(client.network.now() + s(seconds))
    while (fetched := consumer.poll(until)) is not None:
        values += [record.value for record in fetched.records()]
        consumer.consumed(fetched)
    return values


def cut(waiting: list[str], ask: Ask) -> Reply:
    if ask.api.name in waiting:
        waiting.remove(ask.api.name)
        return Cause.UNREACHABLE
    return None


def test_what_was_written_is_read() -> None:
    client = client_of(ToyCluster())
    producer = write(client, b"a", b"b")
    assert producer.take_results() == [Delivered(ZERO, Offset(0), 2)]
    assert producer.identity == Identity(7, 0)
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({ZERO: Offset(0)})
    assert read(consumer, client) == [b"a", b"b"]
    assert (consumer.position(ZERO), consumer.lag(ZERO)) == (2, 0)


def test_a_topic_that_is_not_there_cannot_be_opened() -> None:
    producer = Producer(client_of(ToyCluster()), ProducerSettings())
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
        producer.open("u")


def test_a_topic_without_partitions_cannot_be_opened() -> None:
    producer = Producer(client_of(ToyCluster(partitions=0)), ProducerSettings())
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
        producer.open("t")


def test_a_cut_connection_is_no_failure() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    waiting = ["Produce", "Produce", "Metadata"]
    cluster.before = lambda ask: cut(waiting, ask)
    assert write(client, b"a").take_results() == [Delivered(ZERO, Offset(0), 1)]
    assert waiting == []


def test_a_cluster_that_is_gone_fails_the_batch_in_time() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    producer = Producer(
        client, ProducerSettings(request_timeout_ns=s(1), delivery_timeout_ns=s(10))
    )
    producer.open("t")
    cluster.before = lambda _: Cause.UNREACHABLE
    producer.send("t", Record(0, 0, None, b"a"))
    producer.flush()
    assert [type(one) for one in producer.take_results()] == [Failed]
    assert client.network.now() >= s(10)


def test_a_full_buffer_waits_for_the_broker() -> None:
    client = client_of(ToyCluster(), delay_ns=ms(20))
    settings = ProducerSettings(batch_bytes=200, buffer_bytes=400)
    producer = write(client, *[bytes(80)] * 20, settings=settings)
    assert sum(one.records for one in producer.take_results()) == 20
    assert client.network.now() >= ms(20) * 4


def test_answers_to_somebody_else_are_passed_over() -> None:
    client = client_of(ToyCluster())
    client.ask(METADATA_OF_NOTHING)
    producer = write(client, b"a")
    assert [one.records for one in producer.take_results()] == [1]
    client.ask(METADATA_OF_NOTHING)
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({ZERO: Offset(0)})
    assert read(consumer, client) == [b"a"]


def test_keys_and_partitions_decide_where_records_go() -> None:
    cluster = ToyCluster(partitions=3)
    producer = Producer(client_of(cluster), ProducerSettings(acks=Acks.LEADER), first_partition=1)
    assert producer.open("t") == 3
    producer.send("t", Record(0, 0, None, b"sticky"))
    producer.send("t", Record(0, 0, b"k", b"by key"))
    producer.send("t", Record(0, 0, None, b"named"), Partition(2))
    producer.flush()
    counts: dict[int, int] = {}
    for one in producer.take_results():
        counts[one.partition[1]] = counts.get(one.partition[1], 0) + one.records
    assert counts[1] >= 1
    assert counts[2] >= 1
    assert sum(counts.values()) == 3
    assert producer.identity is None


def test_without_acks_nobody_is_waited_for() -> None:
    producer = write(client_of(ToyCluster()), b"a", settings=ProducerSettings(acks=Acks.NONE))
    assert producer.take_results() == [Delivered(ZERO, Offset(-1), 1)]


@pytest.mark.parametrize(("asked", "found"), [(0, 2), (99, 3)])
def test_a_position_that_is_not_there_becomes_the_nearest(asked: int, found: int) -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    write(client, b"a", b"b", b"c")
    cluster.starts[0] = 2
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({ZERO: Offset(asked)})
    assert read(consumer, client) == ([b"c"] if found == 2 else [])
    assert consumer.resets == [Reset(ZERO, Offset(asked), Offset(found))]


def test_a_position_that_came_into_range_meanwhile_is_kept() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({ZERO: Offset(1)})
    assert consumer.poll(Instant(0)) is None
    write(client, b"a", b"b")
    assert read(consumer, client) == [b"b"]
    assert consumer.resets == []


def test_a_reader_survives_cut_connections() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    write(client, b"a")
    waiting = ["Fetch", "Fetch", "Metadata"]
    cluster.before = lambda ask: cut(waiting, ask)
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({ZERO: Offset(0)})
    assert read(consumer, client) == [b"a"]
    assert waiting == []


def test_a_reader_waits_while_the_cluster_is_gone() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    write(client, b"a")
    consumer = Consumer(client, ConsumerSettings(request_timeout_ns=s(1)))
    consumer.assign({ZERO: Offset(0)})
    cluster.before = lambda _: Cause.UNREACHABLE
    assert read(consumer, client) == []
    cluster.before = lambda _: None
    assert read(consumer, client) == [b"a"]


def test_a_dropped_partition_is_not_given_out() -> None:
    cluster = ToyCluster(partitions=2)
    client = client_of(cluster)
    producer = Producer(client, ProducerSettings())
    producer.open("t")
    for number in (0, 1):
        producer.send("t", Record(0, 0, None, b"%d" % number), Partition(number))
    producer.flush()
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({("t", Partition(n)): Offset(0) for n in (0, 1)})
    first = consumer.poll(Instant(s(1)))
    assert first is not None
    consumer.drop(first.partition)
    other = consumer.poll(Instant(s(1)))
    assert other is not None
    assert other.partition != first.partition
    consumer.drop(other.partition)
    assert consumer.poll(Instant(client.network.now() + 1)) is None
