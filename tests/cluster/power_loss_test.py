"""Brokers that lose power, as an ordinary user takes it from them: what is lost, and what is not.

Under every policy: nothing acknowledged while another in-sync replica has it. Under `commit`:
nothing acknowledged, though all of them lose power at once.
"""

from collections.abc import Iterator

import pytest

from harness.faults.power import (
    Sender,
    create,
    log_of,
    power_loss,
    start_all,
    wrong_after_power_loss,
)
from harness.processes.cluster import Cluster, until
from tidelog.node.settings import TOPIC

pytestmark = pytest.mark.slow

POLICIES = ["os", "commit"] if "flush.policy" in TOPIC.rows else ["os"]
ACKED = 60


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("power"), brokers=3) as running:
        yield running


def topic_of(cluster: Cluster, name: str, policy: str) -> str:
    configs = {"min.insync.replicas": "2"}
    create(cluster, name, configs | ({"flush.policy": policy} if policy != "os" else {}))
    cluster.done("wait", "isr", name)
    return name


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("broker", [0, 2])
def test_a_broker_that_loses_power_takes_nothing_acknowledged_with_it(
    trio: Cluster, policy: str, broker: int
) -> None:
    topic = topic_of(trio, f"one-{policy}-{broker}", policy)
    sender = Sender(trio, topic)
    with sender.sending():
        sender.wait_for_acks(ACKED)
        done = power_loss(trio, str(broker), "--seed", "1")
    assert [(row["role"], row["id"]) for row in done["processes"]] == [("broker", broker)]
    assert done["processes"][0]["lost"] or policy == "commit", "something was not synced"
    trio.done("broker", "start", str(broker))
    assert wrong_after_power_loss(trio, topic, [sender], loses_nothing=True) == []
    trio.done("log", "verify")


@pytest.mark.parametrize("policy", POLICIES)
def test_two_brokers_that_lose_power_take_nothing_acknowledged_with_them(
    trio: Cluster, policy: str
) -> None:
    topic = topic_of(trio, f"two-{policy}", policy)
    sender = Sender(trio, topic)
    with sender.sending():
        sender.wait_for_acks(ACKED)
        power_loss(trio, "0", "1", "--seed", "2")
    trio.done("broker", "start", "0", "1")
    assert wrong_after_power_loss(trio, topic, [sender], loses_nothing=True) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_all_replica_power_loss(trio: Cluster, policy: str) -> None:
    """Each replica has a prefix left, the longest one wins, and all are equal again; what is lost
    is a suffix, and under `commit` nothing that was acknowledged."""
    topic = topic_of(trio, f"all-{policy}", policy)
    sender = Sender(trio, topic)
    with sender.sending():
        sender.wait_for_acks(ACKED)
        done = power_loss(trio, "--all", "--seed", "3")
    assert [row["role"] for row in done["processes"]] == ["broker"] * 3 + ["coordinator"]
    start_all(trio)
    is_safe = policy == "commit"
    assert wrong_after_power_loss(trio, topic, [sender], loses_nothing=is_safe) == []
    trio.done("log", "verify")
    left = log_of(trio, topic)
    again = Sender(trio, topic, sent=len(left))
    with again.sending():
        again.wait_for_acks(ACKED)
    assert set(again.acked) <= set(log_of(trio, topic))


def test_the_metadata_of_an_answered_request_outlives_the_machine(trio: Cluster) -> None:
    for number in range(3):
        create(trio, f"kept-{number}", {"retention.ms": "777000"})
        power_loss(trio, "--all")
        start_all(trio)
    for number in range(3):
        configs = trio.done("config", "describe", "topic", f"kept-{number}", "--json").document
        assert "777000" in str(configs)


def test_a_dry_run_kills_nobody_and_a_seed_says_the_same_twice(trio: Cluster) -> None:
    topic = topic_of(trio, "dry", "os")
    trio.done("produce", topic, text="one\ntwo\n")
    pids = trio.status()["processes"]

    def look(seed: int) -> object:
        return power_loss(trio, "--all", "--dry-run", "--seed", str(seed))

    until(lambda: look(7) == look(7), "nothing is written any more")
    assert look(7) != look(8)
    assert [row["pid"] for row in trio.status()["processes"]] == [row["pid"] for row in pids]
    assert trio.done("consume", topic, "-o", "start", "-n", "2").out == "one\ntwo\n"


def test_what_cannot_lose_power_is_named(trio: Cluster) -> None:
    assert trio.command("chaos", "power-loss", "7").code == 3
    assert trio.command("chaos", "power-loss").code == 2
    assert trio.command("chaos", "power-loss", "0", "--all").code == 2
