"""Clients that do nothing but wrong do not fill the disk with lines about it."""

import json
from typing import Any

import pytest

from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.node.few_lines import LINES_MAX

pytestmark = pytest.mark.slow

MANY = 10 * LINES_MAX


def test_refused_connections_are_counted_when_there_are_too_many_to_tell(
    fresh_cluster: Cluster,
) -> None:
    for _ in range(MANY):
        with RawClient(fresh_cluster.bootstrap) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert client.is_closed_by_peer()

    def told() -> list[dict[str, Any]]:
        lines = map(json.loads, (fresh_cluster.data / "logs/broker-0.log").read_text().splitlines())
        return [line for line in lines if "connection_refused" in {line["event"], line.get("of")}]

    until(lambda: sum(line.get("count", 1) for line in told()) == MANY, "all are told or counted")
    assert len(told()) < MANY / 2
    assert all(line["client"].startswith("127.0.0.1:") for line in told()[:LINES_MAX])
