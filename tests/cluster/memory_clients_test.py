"""Clients that take what they can: each holds a bounded amount of memory, and gives it back."""

import contextlib
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient, request_bytes
from harness.processes.cluster import Cluster, until
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch, k03_metadata, k18_api_versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MIB = 1 << 20
VERSIONS = request_bytes(
    k18_api_versions.API,
    3,
    k18_api_versions.ApiVersionsRequest(client_software_name="m", client_software_version="1"),
)
CONNECTIONS_MAX = 10_000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("crowded")) as running:
        yield running


@contextlib.contextmanager
def growth_below(cluster: Cluster, size_bytes: int) -> Iterator[None]:
    """Inside, the broker may take so much more memory and no more; and it stays the same broker."""
    pid, before = cluster.broker_pid(0), cluster.broker_rss_bytes(0)
    yield
    grown = cluster.broker_rss_bytes(0) - before
    assert cluster.broker_pid(0) == pid
    assert grown < size_bytes, f"{grown / MIB:.1f} MiB"


def assert_served(cluster: Cluster) -> None:
    with RawClient(cluster.bootstrap) as other:
        other.send(VERSIONS)
        assert other.receive_frame()[4:6] == b"\0\0"


def connections(cluster: Cluster) -> int:
    """As the broker counts them, on its board."""
    with Board.open(board_name(cluster.runs[-1].run_id)) as board:
        words = board.read_slot(slot_of(Role.BROKER, 0))
    assert words is not None
    return int(words[Word.CONNECTIONS])


def wide_fetch(topic: str, partitions: int, **fields: Any) -> bytes:
    wanted = [
        k01_fetch.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)
        for number in range(partitions)
    ]
    request = k01_fetch.FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1} | fields,
        topics=[k01_fetch.FetchTopic(topic=topic, partitions=wanted)],
    )
    return request_bytes(k01_fetch.API, 11, request)


def test_fetches_of_clients_that_left_are_forgotten(crowded: Cluster) -> None:
    topic = crowded.create_topic(partitions=200)
    parked = wide_fetch(topic, 200, max_wait_ms=300_000)
    with RawClient(crowded.bootstrap) as raw:
        raw.send(wide_fetch(topic, 200))
        raw.receive_frame()
    with growth_below(crowded, 24 * MIB):
        for _ in range(1_500):
            with RawClient(crowded.bootstrap) as raw:
                raw.send(parked)
        assert_served(crowded)


def test_answers_nobody_reads_are_bounded_and_come_when_they_are_read(crowded: Cluster) -> None:
    topic = crowded.create_topic(partitions=1_000)
    asked = request_bytes(
        k03_metadata.API,
        8,
        k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=topic)]),
    )
    number = 0
    with growth_below(crowded, 32 * MIB), RawClient(crowded.bootstrap, receive_bytes=4096) as raw:
        raw.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):  # no byte goes any more: the broker reads nothing
            for number in range(100_000):
                raw.send(asked[:8] + struct.pack(">i", number) + asked[12:])
        assert number < 99_999
        raw.sock.settimeout(10)
        for expected in range(50):
            assert struct.unpack(">i", raw.receive_frame()[:4])[0] == expected
        assert_served(crowded)


def test_a_flood_of_fetches_nobody_reads_holds_no_payload(crowded: Cluster) -> None:
    topic = crowded.create_topic()
    with RawClient(crowded.bootstrap) as raw:
        for _ in range(8):
            produce(raw, topic, batch_of(bytes(900_000)))
    request = request_bytes(k01_fetch.API, 11, fetch_request(topic, 0))
    with growth_below(crowded, 32 * MIB), contextlib.ExitStack() as stack:
        for _ in range(20):
            raw = stack.enter_context(RawClient(crowded.bootstrap, receive_bytes=4096))
            raw.sock.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                for _ in range(100_000):
                    raw.send(request)
        assert_served(crowded)


def test_a_session_cannot_be_grown_without_end(crowded: Cluster) -> None:
    with growth_below(crowded, 96 * MIB), RawClient(crowded.bootstrap) as raw:
        raw.send(wide_fetch("x0", 2_000, session_epoch=0))
        answer = raw.receive_frame()
        (session,) = struct.unpack(">i", answer[10:14])
        assert session > 0, "the sessions of others left no room"
        for epoch in range(1, 300):
            raw.send(wide_fetch(f"x{epoch}", 2_000, session_id=session, session_epoch=epoch))
            (code,) = struct.unpack(">h", raw.receive_frame()[8:10])
            if code:
                break
        assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_wide_sessions_in_a_flood_are_bounded(crowded: Cluster) -> None:
    request = wide_fetch("no-such-topic", 2_000, session_epoch=0)
    with growth_below(crowded, 96 * MIB), RawClient(crowded.bootstrap) as raw:
        for _ in range(400):
            raw.send(request)
            answer = raw.receive_frame()
            assert struct.unpack(">h", answer[8:10])[0] == ErrorCode.NONE


def test_ten_thousand_connections_cost_little_and_one_more_is_turned_away(
    crowded: Cluster,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(CONNECTIONS_MAX, hard - 500)
    try:
        with growth_below(crowded, 160 * MIB), contextlib.ExitStack() as stack:
            clients = [stack.enter_context(RawClient(crowded.bootstrap)) for _ in range(wanted - 1)]
            for client in clients:
                client.send(VERSIONS)
            for client in clients:
                client.receive_frame()
            assert_served(crowded)
            if wanted == CONNECTIONS_MAX:
                until(lambda: connections(crowded) == wanted - 1, "the last one is gone")
                stack.enter_context(RawClient(crowded.bootstrap)).send(VERSIONS)
                more = stack.enter_context(RawClient(crowded.bootstrap))
                assert more.is_closed_by_peer()
        until(lambda: connections(crowded) == 0, "all connections are gone")
        assert_served(crowded)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_endless_requests_of_many_clients_take_little_memory_and_others_are_served(
    tmp_path: Path,
) -> None:
    """Without a common limit each of them takes all that it sends."""
    settings = {"queued.max.request.bytes": str(16 * MIB)}
    with Cluster(tmp_path, settings=settings) as cluster, contextlib.ExitStack() as stack:
        topic = cluster.create_topic(configs={"max.message.bytes": str(16 * MIB)})
        assert_served(cluster)
        with growth_below(cluster, 96 * MIB):  # one request may go beyond the limit
            for size in [30 * MIB] * 6 + [200_000] * 80:
                raw = stack.enter_context(RawClient(cluster.bootstrap))
                raw.sock.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    raw.send(struct.pack(">i", size) + bytes(size - 1))
            assert_served(cluster)
            with RawClient(cluster.bootstrap) as other:
                other.sock.settimeout(120)
                row = produce(other, topic, batch_of(bytes(8 * MIB)))
                assert row.error_code == ErrorCode.NONE


def test_connections_that_never_ask_shut_nobody_out(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path, settings={"max.connections": "30"}) as cluster,
        contextlib.ExitStack() as stack,
    ):
        until(lambda: connections(cluster) == 0, "nobody is connected")
        asking = [stack.enter_context(RawClient(cluster.bootstrap)) for _ in range(10)]
        for client in asking:
            client.send(VERSIONS)
            client.receive_frame()
        silent = [stack.enter_context(RawClient(cluster.bootstrap)) for _ in range(20)]
        silent[0].send(VERSIONS[:-1])

        def is_served() -> bool:
            with RawClient(cluster.bootstrap) as other:
                try:
                    other.send(VERSIONS)
                    other.receive_frame()
                except (EOFError, OSError):
                    return False
                return True

        assert not is_served(), "the others may be about to ask"
        until(is_served, "a newcomer gets the place of one that never asked")
        assert silent[0].is_closed_by_peer()
        for client in asking:
            client.send(VERSIONS)
            client.receive_frame()
