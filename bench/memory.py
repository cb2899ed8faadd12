"""What a partition and a connection cost in memory, over all processes of a cluster (PSS).

Partitions that hold nothing, then the same with one record each; connections that said hello, then
the same after each produced a large batch. Every figure is the growth since the step before it, by
the number of them.
"""

import argparse
import contextlib
import resource
import time

from clusters import Tidelog, running
from measuring import MB, Arguments, Figures, Meter, middle, pss_mb, repeat, report, versions
from raw_client import RawClient, produce_request_of
from tidelog.wire.messages import k00_produce, k18_api_versions
from workloads import values

_TOPIC = "memory"
_SETTLE_S = 1.0
_HELLO_VERSION = 3
_PRODUCE_VERSION = 9
_LARGE_BYTES = 500_000
_NAMES = (
    "empty_cluster_mb",
    "kb_per_partition",
    "kb_per_partition_with_a_record",
    "kb_per_connection",
    "kb_per_connection_after_a_large_batch",
)


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["memory.py", "memory.py --partitions 10000 --connections 5000"], runs=1
    )
    asked.add_argument("--partitions", type=int, default=2000, help="of one topic (2000)")
    asked.add_argument("--connections", type=int, default=500, help="at the same time (500)")
    return asked


class Growth:
    """Memory of a cluster, step by step."""

    def __init__(self, cluster: Tidelog) -> None:
        self._cluster = cluster
        self.now = self._settled()

    def _settled(self) -> float:
        time.sleep(_SETTLE_S)
        return pss_mb(self._cluster.pids)["all"]

    def kb_each(self, count: int) -> float:
        """Kilobytes of 10^3 bytes since the last look, by so many."""
        before, self.now = self.now, self._settled()
        return round((self.now - before) * MB / 1000 / count, 2)


def one(asked: argparse.Namespace) -> Figures:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, asked.connections + 1000), hard))
    meter = Meter([])
    try:
        with running() as cluster:
            growth = Growth(cluster)
            empty = growth.now
            partitions = _partitions(cluster, growth, asked.partitions)
            connections = _connections(cluster, growth, asked.connections)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    other = meter.stop()["other_share"]
    return {"empty_cluster_mb": empty, **partitions, **connections, "other_share": other}


def _partitions(cluster: Tidelog, growth: Growth, count: int) -> Figures:
    with RawClient(cluster.bootstrap) as client:
        client.create_topic(_TOPIC, count)
        client.leaders(_TOPIC)
        empty = growth.kb_each(count)
        for number in range(count):
            client.produce_once(_TOPIC, b"x" * 100, number)
        return {
            "kb_per_partition": empty,
            "kb_per_partition_with_a_record": growth.kb_each(count),
        }


def _connections(cluster: Tidelog, growth: Growth, count: int) -> Figures:
    hello = k18_api_versions.ApiVersionsRequest(
        client_software_name="bench", client_software_version="1"
    )
    large = produce_request_of(_TOPIC, 0, values(_LARGE_BYTES, count=1))
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(RawClient(cluster.bootstrap)) for _ in range(count)]
        for client in clients:
            client.ask(k18_api_versions.API, _HELLO_VERSION, hello)
        idle = growth.kb_each(count)
        for client in clients:
            client.ask(k00_produce.API, _PRODUCE_VERSION, large)
        return {
            "kb_per_connection": idle,
            "kb_per_connection_after_a_large_batch": growth.kb_each(count),
        }


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {
        "partitions": asked.partitions,
        "connections": asked.connections,
        "large_batch_bytes": _LARGE_BYTES,
        "versions": versions("uvloop", "pyzmq"),
    }
    report("memory", settings, {name: middle(runs, name) for name in _NAMES}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
