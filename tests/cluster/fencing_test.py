"""A broker that hangs is given up, and comes back as another life: real processes and signals."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce, k18_api_versions

pytestmark = pytest.mark.slow

VERSIONS = k18_api_versions.ApiVersionsRequest(
    client_software_name="test", client_software_version="1"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=2) as running:
        yield running


def events(cluster: Cluster, process: str, event: str) -> int:
    log = (cluster.data / f"logs/{process}.log").read_text()
    return log.count(f'"event": "{event}"')


def until_events(cluster: Cluster, process: str, event: str, count: int) -> None:
    until(lambda: events(cluster, process, event) == count, f"{event} of {process} x {count}")


def client_of(cluster: Cluster, broker: int) -> RawClient:
    return RawClient(cluster.bootstrap.split(",")[broker])


def leader_of(cluster: Cluster) -> int:
    """The broker that leads the only partition there is."""
    until(lambda: sum(row["leaders"] for row in brokers(cluster)) == 1, "someone leads")
    return int(next(row["id"] for row in brokers(cluster) if row["leaders"]))


def brokers(cluster: Cluster) -> list[dict[str, Any]]:
    return [row for row in cluster.status()["processes"] if row["role"] == "broker"]


def send(client: RawClient, topic: str, value: bytes) -> int:
    """The error code."""
    answer = client.ask(k00_produce.API, 9, produce_request(topic, batch_of(value)))
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_paused_broker_is_cut_off_answers_nothing_more_and_is_taken_back(two: Cluster) -> None:
    topic = two.create_topic()
    led = leader_of(two)
    pid = two.broker_pid(led)
    with client_of(two, led) as client:
        assert send(client, topic, b"before") == 0
        two.done("broker", "pause", str(led))
        client.start(k00_produce.API, 9, produce_request(topic, batch_of(b"meanwhile")))
        assert client.is_closed_by_peer()
        assert two.process("broker", led)["state"] == "paused"
        with pytest.raises(ConnectionRefusedError):
            client_of(two, led)
    until(lambda: events(two, "coordinator-0", "broker_fenced") == 1, "it is given up")
    two.done("broker", "resume", str(led))
    until(lambda: events(two, f"broker-{led}", "registered") == 2, "it is taken back")
    assert two.broker_pid(led) == pid
    assert events(two, f"broker-{led}", "fenced") == 1
    until(lambda: two.process("broker", led)["state"] == "running", "it says so")
    with client_of(two, led) as client:
        until(lambda: send(client, topic, b"after") == 0, "it leads again")
        values = [row.value for row in fetch_all(client, topic)]
    assert (values[0], values[-1]) == (b"before", b"after")
    assert b"meanwhile" not in values


def test_a_broker_that_is_paused_again_and_again_is_cut_off_each_time(two: Cluster) -> None:
    for turn in (1, 2, 3):
        with client_of(two, 0) as client:
            two.done("broker", "pause", "0")
            assert client.is_closed_by_peer()
        until_events(two, "coordinator-0", "broker_fenced", turn)
        two.done("broker", "resume", "0")
        # Until it has noticed that it was given up it shows itself as before, and takes nobody in.
        until_events(two, "broker-0", "registered", turn + 1)
        until(lambda: two.process("broker", 0)["state"] == "running", "it is taken back")
    assert events(two, "supervisor-0", "clients_not_cut_off") == 0


def test_a_broker_that_is_killed_while_it_is_paused_starts_again(two: Cluster) -> None:
    topic = two.create_topic()
    led = leader_of(two)
    with client_of(two, led) as client:
        assert send(client, topic, b"before") == 0
        two.done("broker", "pause", str(led))
        assert client.is_closed_by_peer()
    two.done("broker", "kill", str(led))
    two.done("broker", "start", str(led))
    with client_of(two, led) as client:
        until(lambda: send(client, topic, b"after") == 0, "it leads again")
        assert [row.value for row in fetch_all(client, topic)] == [b"before", b"after"]


def test_the_coordinator_hears_of_a_death_from_the_supervisor(two: Cluster) -> None:
    two.done("broker", "kill", "1")
    until(lambda: events(two, "coordinator-0", "broker_fenced") == 1, "it is given up")
    log = [json.loads(line) for line in two.logs().splitlines() if line.startswith("{")]
    died = next(line["time"] for line in log if line["event"] == "process_died")
    fenced = next(line["time"] for line in log if line["event"] == "broker_fenced")
    assert died <= fenced


def test_a_machine_that_stands_still_for_seconds_fences_nobody(two: Cluster) -> None:
    """Everything is late at once, the watcher too: nobody hangs, and no connection is cut."""
    two.create_topic()
    pids = [row["pid"] for row in two.status()["processes"]]
    supervisor, *others = pids
    with client_of(two, 0) as client:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5)  # the fault: longer than a broker or the coordinator may be stopped
        os.kill(supervisor, signal.SIGCONT)
        for pid in others:
            os.kill(pid, signal.SIGCONT)
        client.ask(k18_api_versions.API, 3, VERSIONS)
        two.create_topic()
        client.ask(k18_api_versions.API, 3, VERSIONS)
    assert [row["pid"] for row in two.status()["processes"]] == pids
    assert events(two, "supervisor-0", "process_hung") == 0
    assert events(two, "coordinator-0", "broker_fenced") == 0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as running:
        running.done("topic", "create", "t", "-r", "3", "-c", "min.insync.replicas=2")
        yield running


def described(cluster: Cluster, broker: int) -> dict[str, Any]:
    """The only partition, as this broker knows it."""
    address = cluster.bootstrap.split(",")[broker]
    shown = cluster.done("topic", "describe", "t", "--json", "-b", address).document
    row: dict[str, Any] = shown["topics"][0]["partitions"][0]
    return row


def values_of_replica(cluster: Cluster, broker: int) -> list[str]:
    words = ["log", "dump", "t:0", "--broker", str(broker), "--deep", "--json"]
    rows = [json.loads(line) for line in cluster.done(*words).out.splitlines()]
    return [row["value"] for row in rows if "value" in row]


def test_a_paused_leader_returns_as_a_follower_and_with_the_log_of_the_others(
    three: Cluster,
) -> None:
    old = int(described(three, 0)["leader"])
    other = (old + 1) % 3
    with client_of(three, old) as client:
        assert send(client, "t", b"before") == 0
        three.done("broker", "pause", str(old))
        client.start(k00_produce.API, 9, produce_request("t", batch_of(b"meanwhile")))
        assert client.is_closed_by_peer()
    new = until_led_by_another(three, other, old)
    with client_of(three, new) as client:
        assert send(client, "t", b"after") == 0
        assert [row.value for row in fetch_all(client, "t")] == [b"before", b"after"]
    three.done("broker", "resume", str(old))
    until(lambda: described(three, new)["isr"] == described(three, new)["replicas"], "all in sync")
    assert described(three, old)["leader"] == new
    assert events(three, f"broker-{old}", "fenced") == 1
    replicas = [values_of_replica(three, broker) for broker in range(3)]
    assert replicas == [["before", "after"]] * 3
    with client_of(three, old) as client:
        assert send(client, "t", b"to the old one") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_broker_paused_in_turn_loses_nothing(three: Cluster) -> None:
    written = []
    for turn in range(3):
        leader = int(described(three, turn)["leader"])
        witness = (leader + 1) % 3
        with client_of(three, leader) as client:
            written.append(b"%d" % turn)
            assert send(client, "t", written[-1]) == 0
            three.done("broker", "pause", str(leader))
            assert client.is_closed_by_peer()
        until_led_by_another(three, witness, leader)
        three.done("broker", "resume", str(leader))
        three.until_heard()
        three.done("wait", "isr", "t")
        three.until_heard()
    leader = int(described(three, 0)["leader"])
    with client_of(three, leader) as client:
        assert [row.value for row in fetch_all(client, "t")] == written


def until_led_by_another(cluster: Cluster, witness: int, old: int) -> int:
    """The new leader, which has heard of it, too."""
    until(lambda: described(cluster, witness)["leader"] not in {None, old}, "another leads")
    new = int(described(cluster, witness)["leader"])
    until(lambda: described(cluster, new)["leader"] == new, "the new leader knows")
    return new
