"""Batches whose header is right and whose records are not: bombs, noise, and files that vanish."""

import os
import struct
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from crc32c import crc32c

from harness.clients.fetch_raw import fetch_all, offset_at
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import WAIT_S, RawClient
from harness.processes.cluster import Cluster
from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.wire.codecs import Codec, compress
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k20_delete_topics
from tidelog.wire.records import HEADER

pytestmark = pytest.mark.slow

MIB = 1 << 20
BOMB_BYTES = 2 * DECOMPRESSED_BATCH_BYTES_MAX
CODECS = [codec for codec in Codec if codec is not Codec.NONE]
# A frame header that asks for a window of 2 GiB, and one block of noise.
WIDE_ZSTD = b"\x28\xb5\x2f\xfd" + bytes([0x00, 21 << 3]) + b"\x11\x00\x00" + b"ab"


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture(autouse=True)
def same_broker(cluster: Cluster) -> Iterator[None]:
    pid = cluster.broker_pid(0)
    yield
    assert cluster.broker_pid(0) == pid


def sealed(codec: Codec, body: bytes, *, count: int = 1, timestamp: int = 1_000) -> bytearray:
    """A batch around any bytes at all, with the right checksum."""
    batch = bytearray(batch_of(b"x", timestamp=timestamp)[: HEADER.size]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@cache
def bomb(codec: Codec) -> bytes:
    packed = bytes(compress(codec, bytes(BOMB_BYTES)))
    assert len(packed) < BOMB_BYTES / 20, codec
    return packed


def cpu_s(cluster: Cluster) -> float:
    """What the broker has worked so far, however busy the machine is."""
    times = Path(f"/proc/{cluster.broker_pid(0)}/stat").read_text().rpartition(") ")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_where_the_broker_must_look_inside(
    cluster: Cluster, raw: RawClient, codec: Codec
) -> None:
    topic = cluster.create_topic(
        configs={"cleanup.policy": "compact", "max.message.bytes": str(16 * MIB)}
    )
    batch = sealed(codec, bomb(codec))
    before = cluster.broker_rss_bytes(0)
    began_s = cpu_s(cluster)
    row = produce(raw, topic, batch)
    assert cpu_s(cluster) - began_s < 5
    assert ErrorCode(row.error_code) is ErrorCode.MESSAGE_TOO_LARGE
    assert cluster.broker_rss_bytes(0) - before < 3 * DECOMPRESSED_BATCH_BYTES_MAX
    assert offset_at(raw, topic, -1) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_that_was_stored_unseen_does_not_go_off_in_a_lookup_by_time(
    cluster: Cluster, raw: RawClient, codec: Codec
) -> None:
    topic = cluster.create_topic(configs={"max.message.bytes": str(16 * MIB)})
    produce(raw, topic, batch_of(b"first", timestamp=500))
    assert produce(raw, topic, sealed(codec, bomb(codec))).base_offset == 1
    assert offset_at(raw, topic, 400) == 0
    assert offset_at(raw, topic, 1_000) == 1
    assert offset_at(raw, topic, 2_000) == -1


def test_a_window_of_two_gib_is_not_made(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    before = cluster.broker_rss_bytes(0)
    row = produce(raw, topic, sealed(Codec.ZSTD, WIDE_ZSTD))
    assert row.error_code in {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
    assert cluster.broker_rss_bytes(0) - before < DECOMPRESSED_BATCH_BYTES_MAX


@pytest.mark.parametrize("codec", list(Codec))
def test_noise_for_records_is_refused_where_it_is_read_and_found_as_one_where_it_is_not(
    cluster: Cluster, raw: RawClient, codec: Codec
) -> None:
    noise = bytes(range(200, 256)) * 3
    compacted = cluster.create_topic(configs={"cleanup.policy": "compact"})
    row = produce(raw, compacted, sealed(codec, noise))
    assert ErrorCode(row.error_code) is ErrorCode.INVALID_RECORD
    assert offset_at(raw, compacted, -1) == 0
    plain = cluster.create_topic()
    assert produce(raw, plain, sealed(codec, noise, count=3)).base_offset == 0
    assert offset_at(raw, plain, 900) == 0
    assert offset_at(raw, plain, -1) == 3
    assert produce(raw, plain, batch_of(b"after", timestamp=9_000)).base_offset == 3
    assert offset_at(raw, plain, 5_000) == 3


def segment_of(cluster: Cluster, topic: str) -> Path:
    return cluster.data / f"broker-0/log0/{topic}-0/{0:020d}.log"


def test_a_segment_cut_under_the_broker_ends_who_reads_it_and_nobody_else(
    cluster: Cluster, raw: RawClient
) -> None:
    topic, other = cluster.create_topic(), cluster.create_topic()
    for name in (topic, other):
        produce(raw, name, batch_of(bytes(100_000)))
    os.truncate(segment_of(cluster, topic), 1_000)
    with RawClient(cluster.bootstrap) as reader, pytest.raises((EOFError, ConnectionResetError)):
        fetch_all(reader, topic)
    assert len(fetch_all(raw, other)) == 1


def test_a_folder_removed_under_the_broker_hurts_nobody_else(
    cluster: Cluster, raw: RawClient
) -> None:
    topic, other = cluster.create_topic(), cluster.create_topic()
    for name in (topic, other):
        produce(raw, name, batch_of(b"x"))
    folder = segment_of(cluster, topic).parent
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    produce(raw, topic, batch_of(b"y"))  # whatever it says: the file lives while it is open
    request = k20_delete_topics.DeleteTopicsRequest(
        topics=[k20_delete_topics.DeleteTopicState(name=topic)], timeout_ms=5_000
    )
    assert raw.ask(k20_delete_topics.API, 6, request).responses[0].error_code == 0
    assert [row.value for row in fetch_all(raw, other)] == [b"x"]


def test_confluent_s_client_blames_the_records_without_a_key_alone(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    told: dict[int, int | None] = {}

    def note(number: int, error: KafkaError | None, _message: object) -> None:
        told[number] = None if error is None else error.code()

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 200, "enable.idempotence": False}
    )
    for number in range(100):
        key = None if number % 10 == 3 else b"key"
        producer.produce(topic, b"v", key=key, on_delivery=partial(note, number))
    assert producer.flush(WAIT_S) == 0
    keyless = {number for number, code in told.items() if code == KafkaError.INVALID_RECORD}
    others = {code for number, code in told.items() if number not in keyless}
    assert keyless == set(range(3, 100, 10))
    assert others == {KafkaError._INVALID_DIFFERENT_RECORD}
