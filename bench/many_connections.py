"""What connections cost one broker: memory, the idle broker, and a small produce request on each.

Every connection produces in turn, a few of them at a time, so that every request comes from another
one. One line of JSON holds the figures for each number of connections.
"""

import argparse
import resource
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

from clusters import Tidelog, running
from measuring import MB, Arguments, Figures, Meter, cpu_s, curve, pss_mb, report, versions
from raw_client import PRODUCE_VERSION, RawClient, produce_request_of
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k00_produce

_CONNECTIONS = (1, 10, 100, 1_000, 5_000)
_TOPIC = "many"
_AT_A_TIME = 50
_SPARE_DESCRIPTORS = 1_000
_SETTLE_S = 2.0


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__),
        ["many_connections.py", "many_connections.py --connections 5000 --requests 50000"],
        runs=1,
    )
    asked.add_argument(
        "--connections", type=int, nargs="+", default=_CONNECTIONS, help="how many, point by point"
    )
    asked.add_argument("--requests", type=int, default=20_000, help="over all of them (20000)")
    asked.add_argument("--idle", type=float, default=10.0, metavar="S", help="seconds idle (10)")
    return asked


def connect(cluster: Tidelog, count: int) -> list[socket.socket]:
    host, port = cluster.bootstrap.split(":")
    return [socket.create_connection((host, int(port)), 30) for _ in range(count)]


def frame_of(value: bytes) -> bytes:
    """A produce request that may be sent again and again: without an idempotent producer."""
    request = produce_request_of(_TOPIC, 0, [value])
    return joined(encode_request(k00_produce.API, PRODUCE_VERSION, 0, "bench", request))


def take_answer(sock: socket.socket) -> None:
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    _, answer = decode_response(
        k00_produce.API, PRODUCE_VERSION, memoryview(sock.recv(size, socket.MSG_WAITALL))
    )
    assert not answer.responses[0].partition_responses[0].error_code


def produce_in_turn(socks: Sequence[socket.socket], frame: bytes, requests: int) -> None:
    waiting: deque[socket.socket] = deque()
    for number in range(requests):
        sock = socks[number % len(socks)]
        if len(waiting) == min(_AT_A_TIME, len(socks)):
            take_answer(waiting.popleft())
        sock.sendall(frame)
        waiting.append(sock)
    for sock in waiting:
        take_answer(sock)


def one(connections: int, asked: argparse.Namespace) -> Figures:
    with running() as cluster:
        with RawClient(cluster.bootstrap) as client:
            client.create_topic(_TOPIC, 1)
            client.produce_once(_TOPIC, b"warm")
        time.sleep(_SETTLE_S)
        empty_mb = pss_mb(cluster.pids)["tide-broker0"]
        socks = connect(cluster, connections)
        try:
            figures = with_connections(cluster, socks, asked)
        finally:
            for sock in socks:
                sock.close()
    kb = (figures["broker_mb"] - empty_mb) * MB / 1000
    return {"connections": connections, **figures, "broker_kb_each": round(kb / connections, 2)}


def with_connections(
    cluster: Tidelog, socks: Sequence[socket.socket], asked: argparse.Namespace
) -> Figures:
    frame = frame_of(bytes(1_000))
    produce_in_turn(socks, frame, max(1_000, len(socks)))  # each has asked once
    spent, meter = cpu_s(cluster.pids), Meter(cluster.pids)
    produce_in_turn(socks, frame, asked.requests)
    produced = meter.stop()
    request_ms = 1000 * (cpu_s(cluster.pids) - spent) / asked.requests
    time.sleep(_SETTLE_S)
    idle, began = cpu_s(cluster.pids), time.monotonic()
    time.sleep(asked.idle)
    idle = cpu_s(cluster.pids) - idle
    return {
        "request_cpu_ms": round(request_ms, 4),
        "requests_per_s": round(asked.requests / produced["wall_s"]),
        "idle_cpu_percent": round(100 * idle / max(1e-9, time.monotonic() - began), 3),
        "broker_mb": pss_mb(cluster.pids)["tide-broker0"],
        "other_share": produced["other_share"],
    }


def run(asked: argparse.Namespace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, max(asked.connections) + _SPARE_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    points, every = curve(asked, asked.connections, one)
    settings = {
        "brokers": 1,
        "requests": asked.requests,
        "requests_at_a_time": _AT_A_TIME,
        "value_bytes": 1_000,
        "versions": versions("uvloop", "pyzmq"),
    }
    report("many_connections", settings, {"points": points}, every)


if __name__ == "__main__":
    run(parser().parse_args())
