"""Many requests on one connection of a real broker, and connections that say nothing."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all, fetch_request
from harness.clients.produce_raw import batch_of, produce, produce_request
from harness.clients.raw_socket import RawClient, answers_of, request_bytes
from harness.processes.cluster import Cluster
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch, k03_metadata, k19_create_topics

pytestmark = pytest.mark.slow

IDLE_MS = 1_000


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(partitions=2)


def produced(topic: str, number: int, *, acks: int = -1, partition: int = 0) -> bytes:
    request = produce_request(topic, batch_of(b"%d" % number), acks=acks, partition=partition)
    return request_bytes(k00_produce.API, 9, request, number)


def fetched(topic: str, number: int, offset: int = 0, **fields: int) -> bytes:
    return request_bytes(k01_fetch.API, 11, fetch_request(topic, offset, **fields), number)


def asked(number: int) -> bytes:
    return request_bytes(k03_metadata.API, 8, k03_metadata.MetadataRequest(topics=[]), number)


def created(name: str, number: int) -> bytes:
    row = k19_create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = k19_create_topics.CreateTopicsRequest(topics=[row], timeout_ms=10_000)
    return request_bytes(k19_create_topics.API, 5, request, number)


def test_a_hundred_produces_in_one_write_are_appended_and_answered_in_order(
    raw: RawClient, topic: str
) -> None:
    raw.send(b"".join(produced(topic, number, acks=(-1, 1)[number % 2]) for number in range(100)))
    frames = [raw.receive_frame() for _ in range(100)]
    assert answers_of(frames) == list(range(100))
    rows = [
        decode_response(k00_produce.API, 9, memoryview(frame))[1].responses[0] for frame in frames
    ]
    assert [row.partition_responses[0].base_offset for row in rows] == list(range(100))
    assert [row.value for row in fetch_all(raw, topic)] == [b"%d" % n for n in range(100)]


def test_whatever_is_asked_in_one_write_is_answered_in_order(raw: RawClient, topic: str) -> None:
    made = f"{topic}-made"
    parts = [
        (
            produced(topic, number, partition=number % 2),
            fetched(topic, number),
            asked(number),
            produced(topic, number, acks=1),
            created(f"{made}-{number}", number),
        )[number % 5]
        for number in range(60)
    ]
    raw.send(b"".join(parts))
    assert answers_of([raw.receive_frame() for _ in parts]) == list(range(60))


def test_answers_skip_the_produces_that_want_none(raw: RawClient, topic: str) -> None:
    parts = [produced(topic, number, acks=(0, 1)[number % 2]) for number in range(40)]
    raw.send(b"".join(parts))
    assert answers_of([raw.receive_frame() for _ in range(20)]) == list(range(1, 40, 2))
    assert len(fetch_all(raw, topic)) == 40


def test_a_parked_fetch_holds_back_its_own_connection_and_no_other(
    cluster: Cluster, raw: RawClient, topic: str
) -> None:
    raw.send(fetched(topic, 1, max_wait_ms=30_000) + asked(2) + produced(topic, 3))
    raw.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        raw.receive_frame()
    raw.sock.settimeout(10)
    with RawClient(cluster.bootstrap) as other:
        assert produce(other, topic, batch_of(b"first")).base_offset == 0
    frames = [raw.receive_frame() for _ in range(3)]
    assert answers_of(frames) == [1, 2, 3]
    assert b"first" in frames[0]
    with RawClient(cluster.bootstrap) as other:
        assert [row.value for row in fetch_all(other, topic)] == [b"first", b"3"]


def test_a_connection_cut_in_a_request_leaves_whole_requests_and_nothing_of_the_cut_one(
    cluster: Cluster, topic: str
) -> None:
    frame = produced(topic, 1)
    for cut in (1, 4, 20, len(frame) - 1):
        with RawClient(cluster.bootstrap) as raw:
            raw.send(frame + frame[:cut])
            raw.receive_frame()
    with RawClient(cluster.bootstrap) as raw:
        assert len(fetch_all(raw, topic)) == 4


def test_a_client_that_shuts_its_sending_side_gets_what_it_asked_for_no_more(
    cluster: Cluster, topic: str
) -> None:
    with RawClient(cluster.bootstrap) as raw:
        raw.send(produced(topic, 1))
        assert struct.unpack(">i", raw.receive_frame()[:4]) == (1,)
        raw.sock.shutdown(1)
        assert raw.is_closed_by_peer()


def is_answered(client: RawClient, number: int) -> bool:
    """False where the connection has ended."""
    try:
        client.send(asked(number))
        frame = client.receive_frame()
    except (EOFError, ConnectionError):
        return False
    return answers_of([frame]) == [number]


def test_quiet_connections_are_closed_and_those_in_use_are_not(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path, settings={"connections.max.idle.ms": str(IDLE_MS)}) as cluster,
        RawClient(cluster.bootstrap) as silent,
        RawClient(cluster.bootstrap) as halfway,
        ExitStack() as all_busy,
    ):
        halfway.send(asked(1)[:6])
        busy = all_busy.enter_context(RawClient(cluster.bootstrap))
        closed: set[RawClient] = set()
        used = time.monotonic()
        deadline = used + 20
        number = 0
        while len(closed) < 2:
            number += 1
            if not is_answered(busy, number):
                # The machine has kept us, or the broker, from using it for as long as that.
                assert time.monotonic() - used > IDLE_MS / 1_000
                busy = all_busy.enter_context(RawClient(cluster.bootstrap))
            used = time.monotonic()
            assert used < deadline, closed
            for client in {silent, halfway} - closed:
                client.sock.settimeout(0.05)
                try:
                    assert client.is_closed_by_peer()
                except TimeoutError:
                    continue
                closed.add(client)
