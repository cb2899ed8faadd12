"""Requests of a few KiB that are a lot of work: whoever asks for little is answered meanwhile."""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from harness.clients.fetch_raw import offset_at
from harness.clients.produce_raw import produce, produce_request
from harness.clients.raw_socket import RawClient, request_bytes
from harness.processes.cluster import Cluster
from tidelog.kernel import limits
from tidelog.wire.codecs import Codec, compress
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k02_list_offsets, k18_api_versions
from tidelog.wire.records import HEADER_BYTES, Record, build_batch, seal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LATE_MS = 2_000_000
LONGEST_WAIT_S = 5.0
"""On a busy machine. One such batch held the broker for six seconds, and there are some of them."""
WORK_S = 100.0
"""A million records take a second of a processor, which others may want too."""


@pytest.fixture(autouse=True)
def same_broker(cluster: Cluster) -> Iterator[None]:
    pid = cluster.broker_pid(0)
    yield
    assert cluster.broker_pid(0) == pid


@cache
def tiny_records(count: int) -> bytes:
    """So many keyed records of 7 bytes each, in a few KiB."""
    one = bytes(build_batch([Record(0, 1_000, b"", b"")])[HEADER_BYTES:])
    return compress(Codec.ZSTD, one * count)


def batch_of_tiny(count: int) -> bytearray:
    """Its header tells of a later time than any of its records has."""
    batch = build_batch([Record(0, 1_000, b"", b"")])[:HEADER_BYTES] + tiny_records(count)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, Codec.ZSTD)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">q", batch, 35, LATE_MS)
    struct.pack_into(">i", batch, 57, count)
    seal(batch)
    assert len(batch) < 64 * limits.KIB
    return batch


@cache
def batch_of_counted(count: int) -> bytearray:
    """As many keyed records with offsets that count on, so that each of them is looked at."""
    return bytearray(
        build_batch([Record(at, 1_000, b"", b"") for at in range(count)], codec=Codec.ZSTD)
    )


@contextmanager
def bystander(cluster: Cluster) -> Iterator[list[float]]:
    """A client that asks for little, all the time; how long it waited for each answer."""
    waits: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        with RawClient(cluster.bootstrap) as client:
            while not is_over.is_set():
                began = time.monotonic()
                client.ask(k18_api_versions.API, 0, k18_api_versions.ApiVersionsRequest())
                waits.append(time.monotonic() - began)
                is_over.wait(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()
    assert waits


@pytest.mark.parametrize(("count", "found"), [(9_000_000, 0), (900_000, 900_000)])
def test_a_search_by_time_in_millions_of_records_holds_nobody_up(
    cluster: Cluster, count: int, found: int
) -> None:
    """Where they are too many, a batch as a whole is the answer."""
    topic = cluster.create_topic()
    with RawClient(cluster.bootstrap) as raw, bystander(cluster) as waits:
        raw.sock.settimeout(WORK_S)
        for _ in range(3):
            assert produce(raw, topic, batch_of_tiny(count)).error_code == ErrorCode.NONE
        row = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATE_MS - 1)
        topics = [k02_list_offsets.ListOffsetsTopic(name=topic, partitions=[row])] * 2
        request = k02_list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = raw.ask(k02_list_offsets.API, 5, request)
        assert offset_at(raw, topic, -1) == 3 * count
    assert [row.partitions[0].offset for row in answer.topics] == [found] * 2
    assert max(waits) < LONGEST_WAIT_S


def test_millions_of_records_for_a_compacted_topic_hold_nobody_up(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    other = cluster.create_topic(configs={"cleanup.policy": "compact"})
    request = produce_request(topic, batch_of_counted(200_000))
    for _ in range(4):
        request.topic_data += produce_request(topic, batch_of_counted(200_000)).topic_data
    frame = request_bytes(k00_produce.API, 9, request)
    ordinary = build_batch(
        [Record(at, 1_000, b"%d" % at, b"v" * at) for at in range(500)], codec=Codec.ZSTD
    )
    with (
        RawClient(cluster.bootstrap) as hostile,
        RawClient(cluster.bootstrap) as more_hostile,
        RawClient(cluster.bootstrap) as raw,
        bystander(cluster) as waits,
    ):
        for client in (hostile, more_hostile):
            client.send(frame * 3)
        raw.sock.settimeout(WORK_S)
        for at in range(20):
            began = time.monotonic()
            row = produce(raw, other, bytearray(ordinary))
            assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 500 * at)
            waits.append(time.monotonic() - began)
        row = produce(raw, topic, batch_of_tiny(limits.RECORDS_LOOKED_AT_MAX + 1))
        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        hostile.sock.settimeout(WORK_S)
        answer = decode_response(k00_produce.API, 9, memoryview(hostile.receive_frame()))[1]
    codes = [row.error_code for one in answer.responses for row in one.partition_responses]
    assert codes == [ErrorCode.NONE] * 5, "a million records were looked at"
    assert max(waits) < LONGEST_WAIT_S
