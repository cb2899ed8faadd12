"""What the kernel is asked to do for a request, and nothing else: no copy, no seek, no time-out."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all, fetch_request
from harness.clients.produce_raw import batch_of, produce, produce_request
from harness.clients.raw_socket import RawClient, request_bytes
from harness.disks.traced import Traced, need_strace
from harness.processes.cluster import Cluster
from tidelog.wire.messages import k00_produce, k01_fetch

pytestmark = pytest.mark.slow

REQUESTS = 1_000
RECEIVE = {"recvfrom", "recvmsg", "read", "recv"}
SEND = {"sendto", "sendmsg", "write", "writev"}
WRITE = {"pwritev", "pwritev2"}
EVENT_WAIT = {"epoll_pwait", "epoll_wait", "epoll_ctl", "io_uring_enter"}
NOW_AND_THEN = 60
"""Calls of no request: the watch on the coordinator, a checkpoint handed to a thread."""
NOW_AND_THEN_A_SECOND = 10
"""There are four or five: on a busy machine the requests take their time."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for each test: the housekeeping of topics that other tests left would be counted."""
    with Cluster(tmp_path_factory.mktemp("traced")) as running:
        yield running


@pytest.fixture
def traced_topic(cluster: Cluster, tmp_path: Path) -> tuple[str, Path, int]:
    need_strace(tmp_path)
    topic = cluster.create_topic()
    with RawClient(cluster.bootstrap) as raw:
        for _ in range(5):  # the files are made, the code paths warm
            produce(raw, topic, batch_of(b"x" * 100))
    return topic, tmp_path, cluster.broker_pid(0)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_produce_is_one_receive_one_write_and_one_send(
    cluster: Cluster, traced_topic: tuple[str, Path, int], acks: int
) -> None:
    topic, folder, pid = traced_topic
    request = request_bytes(
        k00_produce.API, 9, produce_request(topic, batch_of(b"x" * 1_000), acks=acks)
    )
    with RawClient(cluster.bootstrap) as raw:
        with Traced(pid, folder) as traced:
            for _ in range(REQUESTS):
                raw.send(request)
                raw.receive_frame()
        assert len(fetch_all(raw, topic)) == REQUESTS + 5
    counts = traced.counts
    assert written(counts) == REQUESTS
    now_and_then = NOW_AND_THEN + NOW_AND_THEN_A_SECOND * traced.lasted_s
    assert now_and_then < REQUESTS / 2, "it took so long that nothing can be said"
    received = sum(counts[name] for name in RECEIVE)
    sent = sum(counts[name] for name in SEND)
    assert REQUESTS <= received <= REQUESTS + now_and_then, counts
    assert REQUESTS <= sent <= REQUESTS + now_and_then, counts
    rest = {
        name: count
        for name, count in counts.items()
        if name not in RECEIVE | SEND | EVENT_WAIT | WRITE
    }
    assert sum(rest.values()) <= now_and_then, rest
    # Waiting is one call for each turn of the loop; no descriptor is armed anew for a request.
    assert counts["epoll_ctl"] <= now_and_then, counts


def test_pipelined_produces_share_their_receives_and_sends(
    cluster: Cluster, traced_topic: tuple[str, Path, int]
) -> None:
    topic, folder, pid = traced_topic
    one = request_bytes(k00_produce.API, 9, produce_request(topic, batch_of(b"x" * 100)))
    with RawClient(cluster.bootstrap) as raw, Traced(pid, folder) as traced:
        raw.send(one * REQUESTS)
        for _ in range(REQUESTS):
            raw.receive_frame()
    counts = traced.counts
    assert written(counts) == REQUESTS
    assert sum(counts[name] for name in RECEIVE) < REQUESTS / 2, counts


def test_a_consume_is_sendfile_and_no_read_of_the_log(
    cluster: Cluster, traced_topic: tuple[str, Path, int]
) -> None:
    topic, folder, pid = traced_topic
    value = b"x" * 100_000
    with RawClient(cluster.bootstrap) as raw:
        for _ in range(50):
            produce(raw, topic, batch_of(value))
        request = request_bytes(k01_fetch.API, 11, fetch_request(topic, 5))
        with Traced(pid, folder) as traced:
            for _ in range(20):
                raw.send(request)
                assert len(raw.receive_frame()) > 50 * len(value)
            # The last bytes are here before their call has ended: one more answer, and it has.
            raw.ask(k01_fetch.API, 11, fetch_request(topic, 10**9))
    sent = sum(_result_of(line) for line in traced.calls("sendfile"))
    assert sent >= 20 * 50 * len(value)
    # One byte at each end of the range says whether it must be read from the disk first.
    reads = [line for name in ("pread64", "preadv", "preadv2") for line in traced.calls(name)]
    assert all(_result_of(line) <= 1 for line in reads), reads[:5]
    received = sum(_result_of(line) for name in RECEIVE for line in traced.calls(name))
    assert received < 100_000, traced.counts
    assert traced.counts["mmap"] <= 2


def written(counts: Counter[str]) -> int:
    return sum(counts[name] for name in WRITE)


def _result_of(line: str) -> int:
    found = re.search(r"= (-?\d+)", line.rsplit(")", 1)[-1])
    return max(0, int(found[1])) if found else 0
