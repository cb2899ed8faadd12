"""A broker that hangs is given up, and comes back as another life: real processes and signals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster, until
from harness.fetch_raw import fetch_all
from harness.produce_raw import batch_of, produce_request
from harness.raw import RawClient
from tidelog.wire.messages import k00_produce

pytestmark = pytest.mark.slow


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=2) as running:
        yield running


def events(cluster: Cluster, process: str, event: str) -> int:
    log = (cluster.data / f"logs/{process}.log").read_text()
    return log.count(f'"event": "{event}"')


def client_of(cluster: Cluster, broker: int) -> RawClient:
    return RawClient(cluster.bootstrap.split(",")[broker])


def test_a_paused_broker_is_fenced_answers_nothing_more_and_is_taken_back(two: Cluster) -> None:
    topic = two.create_topic()
    led = next(n for n in range(2) if two.process("broker", n)["leaders"])
    pid = two.broker_pid(led)
    with client_of(two, led) as client:
        two.done("broker", "pause", str(led))
        until(lambda: events(two, "coordinator-0", "broker_fenced") == 1, "it is given up")
        assert two.process("broker", led)["state"] == "paused"
        client.start(k00_produce.API, 9, produce_request(topic, batch_of(b"meanwhile")))
        two.done("broker", "resume", str(led))
        assert client.is_closed_by_peer()
    until(lambda: events(two, f"broker-{led}", "registered") == 2, "it is taken back")
    assert two.broker_pid(led) == pid
    assert events(two, f"broker-{led}", "fenced") == 1
    until(lambda: two.process("broker", led)["state"] == "running", "it says so")
    with client_of(two, led) as client:
        answer = client.ask(k00_produce.API, 9, produce_request(topic, batch_of(b"after")))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert [row.value for row in fetch_all(client, topic)] == [b"after"]
