"""Batches that come encoded: sent as they are, under the producer's own numbers."""

import pytest

from harness.machines.plans import FakeNetwork
from harness.machines.toy_cluster import ToyCluster
from harness.machines.toy_transactions import ToyTransactions
from tidelog.clients.asking import Address, Ask
from tidelog.clients.client import Client
from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.sender import Delivered
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import ms
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    iterate_records,
    read_header,
    stamp_origin,
)

ZERO: TopicPartition = ("t", Partition(0))


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(n, 5, None, one) for n, one in enumerate(values)], codec=codec)


def client_of(cluster: ToyCluster, delay_ns: int = 0) -> Client:
    client = Client(FakeNetwork(cluster, delay_ns), [Address("b0", 9092)])
    client.connect()
    return client


def test_who_sends_a_batch_is_written_into_it_and_nothing_else_changes() -> None:
    batch = batch_of(b"a", b"b", codec=Codec.LZ4)
    before = read_header(batch)
    stamp_origin(batch, Origin(7, 3, 40, TRANSACTIONAL_BIT))
    after = read_header(batch)
    assert check_crc(memoryview(batch))
    assert after.is_transactional
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 3, 40)
    stamp_origin(batch, Origin())
    assert read_header(batch) == before
    assert [one.value for one in iterate_records(memoryview(batch))] == [b"a", b"b"]


def test_a_stamp_can_be_told_from_another() -> None:
    one, other = batch_of(b"a"), batch_of(b"a")
    stamp_origin(one, Origin(flags=CONTROL_BIT))
    assert read_header(one).is_control
    stamp_origin(other, Origin(flags=TRANSACTIONAL_BIT))
    assert not read_header(other).is_control


def test_encoded_batches_and_records_keep_their_order() -> None:
    cluster = ToyCluster()
    client = client_of(cluster)
    producer = Producer(client, ProducerSettings())
    producer.open("t")
    producer.send("t", Record(0, 5, None, b"a"), Partition(0))
    producer.send_batch("t", Partition(0), batch_of(b"b", b"c"))
    producer.send("t", Record(0, 5, None, b"d"), Partition(0))
    producer.flush()
    assert [(one.records, one.partition) for one in producer.take_results()] == [
        (1, ZERO),
        (2, ZERO),
        (1, ZERO),
    ]
    log = memoryview(bytes(cluster.logs[0]))
    assert [header.base_sequence for header, _ in iterate_batches(log)] == [0, 1, 3]


def test_a_full_buffer_waits() -> None:
    client = client_of(ToyCluster(), delay_ns=ms(20))
    producer = Producer(client, ProducerSettings(batch_bytes=200, buffer_bytes=400))
    producer.open("t")
    for _ in range(20):
        producer.send_batch("t", Partition(0), batch_of(bytes(80)))
    assert client.network.now() >= ms(20) * 4
    producer.flush()
    assert sum(one.records for one in producer.take_results()) == 20


def batches_in(ask: Ask) -> list[bytes]:
    if not isinstance(ask.message, ProduceRequest):
        return []
    return [
        bytes(one.records or b"")
        for topic in ask.message.topic_data
        for one in topic.partition_data
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_that_is_too_large_goes_in_halves(codec: Codec) -> None:
    cluster = ToyCluster()
    client = client_of(cluster)

    def too_large(ask: Ask) -> ProduceResponse | None:
        if all(read_header(one).record_count < 3 for one in batches_in(ask)):
            return None
        row = PartitionProduceResponse(
            index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[row])]
        )

    cluster.before = too_large
    producer = Producer(client, ProducerSettings())
    producer.open("t")
    producer.send_batch("t", Partition(0), batch_of(b"a", b"b", b"c", b"d", codec=codec))
    producer.flush()
    assert [one.records for one in producer.take_results()] == [2, 2]
    log = memoryview(bytes(cluster.logs[0]))
    values = [one.value for _, batch in iterate_batches(log) for one in iterate_records(batch)]
    assert values == [b"a", b"b", b"c", b"d"]
    assert [header.base_sequence for header, _ in iterate_batches(log)] == [0, 2]


def test_an_encoded_batch_is_part_of_the_transaction() -> None:
    cluster = ToyTransactions()
    client = Client(FakeNetwork(cluster), [Address("b0", 9092)])
    client.connect()
    producer = TransactionalProducer(client, ProducerSettings(transactional_id="x"))
    producer.open("t")
    with pytest.raises(RuntimeError, match="not open"):
        producer.send_batch("t", Partition(0), batch_of(b"a"))
    producer.begin()
    producer.send_batch("t", Partition(0), batch_of(b"a"))
    producer.commit()
    assert cluster.logs[0].visible() == [b"a"]
    (written,) = [one for one in producer.take_results() if isinstance(one, Delivered)]
    assert written.base_offset == Offset(0)
