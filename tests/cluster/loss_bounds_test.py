"""What each flush policy may lose, held against a cluster that has a topic under each of them.

Killed processes cost nothing under any policy, nor does the power of fewer brokers than must be in
sync. The power of all costs the end of each partition, as far as its policy says and no further,
and the log names the window. Under `commit` it costs nothing: no record, no committed offset, no
transaction.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from harness.clients.fetch_raw import offset_at
from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import LATEST, committed_offset, leader
from harness.faults.chaos import controller_pid
from harness.faults.power import (
    Committer,
    Sender,
    Transactor,
    create,
    log_of,
    loss_windows,
    power_loss,
    start_all,
    wrong_after_power_loss,
)
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

MESSAGES, INTERVAL_MS, BYTES = 20, 300, 3_000
BATCH_BYTES_MIN = len(batch_of(b"0"))
"""So many records are at least so many bytes."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    "os": {"flush.policy": "os"},
    "messages": {"flush.policy": "messages", "flush.messages": str(MESSAGES)},
    "interval": {"flush.policy": "interval", "flush.ms": str(INTERVAL_MS)},
    "bytes": {"flush.policy": "bytes"},
    "commit": {"flush.policy": "commit"},
}
SETTINGS = {
    "flush.policy": "commit",
    "flush.bytes": str(BYTES),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ACKED = 75


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("bounds")
    with Cluster(folder, brokers=3, settings=SETTINGS) as running:
        for name, configs in TOPICS.items():
            create(running, name, {"min.insync.replicas": "2", **configs})
            running.done("wait", "isr", name)
        yield running


def sending(cluster: Cluster, undo: ExitStack) -> dict[str, Sender]:
    """One into each topic."""
    senders = {}
    for name in TOPICS:
        sender = Sender(cluster, name, sent=len(log_of(cluster, name)))
        senders[name] = undo.enter_context(sender.sending())
    return senders


def sent(cluster: Cluster) -> dict[str, Sender]:
    """Some into each topic, all of it acknowledged, and nobody sends any more."""
    with ExitStack() as undo:
        senders = sending(cluster, undo)
        for sender in senders.values():
            sender.wait_for_acks(ACKED)
    return senders


def wrong(cluster: Cluster, senders: Mapping[str, Sender], *safe: str) -> list[str]:
    return [
        fault
        for name, sender in senders.items()
        for fault in wrong_after_power_loss(cluster, name, [sender], loses_nothing=name in safe)
    ]


def unflushed(cluster: Cluster) -> dict[str, list[int]]:
    """Of each topic, how many records of each replica are not on stable storage."""
    found = defaultdict(list)
    for broker in cluster.done("disk", "--json").document["brokers"]:
        for row in broker["partitions"]:
            if row["topic"] in TOPICS:
                with RawClient(leader(cluster.bootstrap, row["topic"])) as raw:
                    end = offset_at(raw, row["topic"], LATEST)
                found[row["topic"]].append(end - row["durable_offset"])
    return found


def until_at_rest(cluster: Cluster) -> None:
    """Each policy has flushed what it must."""
    seen: list[Mapping[str, list[int]]] = []

    def look() -> bool:
        seen.append(unflushed(cluster))
        return is_within_limits(seen[-1])

    try:
        until(look, "each policy flushes what is over its limit")
    except AssertionError as late:
        raise AssertionError(f"{late}: unflushed are {seen}") from late


def is_within_limits(now: Mapping[str, list[int]]) -> bool:
    return (
        max(now["messages"]) < MESSAGES
        and max(now["interval"]) == 0
        and max(now["bytes"]) * BATCH_BYTES_MIN < BYTES
        and max(now["commit"]) == 0
    )


def test_at_rest_the_power_of_all_takes_what_the_limits_leave_and_no_more(five: Cluster) -> None:
    senders = sent(five)
    until_at_rest(five)
    power_loss(five, "--all", "--seed", "7")
    start_all(five)
    assert wrong(five, senders, "commit", "interval") == []
    lost = {name: one.sent - len(log_of(five, name)) for name, one in senders.items()}
    assert lost["messages"] < MESSAGES
    assert lost["bytes"] * BATCH_BYTES_MIN < BYTES


@pytest.mark.timeout(3_600)
def test_under_load_the_power_of_all_takes_a_suffix_and_the_log_names_the_window(
    five: Cluster, *, nightly: bool
) -> None:
    for seed in range(100 if nightly else 1):
        cut_under_load(five, seed)


def cut_under_load(five: Cluster, seed: int) -> None:
    before = loss_windows(five)
    with ExitStack() as undo:
        senders = sending(five, undo)
        for sender in senders.values():
            sender.wait_for_acks(ACKED)
        power_loss(five, "--all", "--seed", str(seed))
    start_all(five)
    assert wrong(five, senders, "commit") == []
    now = loss_windows(five)
    for name, sender in senders.items():
        left = len(log_of(five, name))
        if name == "commit":
            assert now.get(name) == before.get(name), "nobody may have lost anything"
            continue
        assert now[name].start == left
        assert now[name].at_least <= sender.sent - left
    assert "kernel" in now["os"].at_most
    for name, limit in (("messages", MESSAGES), ("interval", INTERVAL_MS), ("bytes", BYTES)):
        assert f" {limit} " in now[name].at_most


def test_the_power_of_fewer_than_must_be_in_sync_takes_nothing(five: Cluster) -> None:
    with ExitStack() as undo:
        senders = sending(five, undo)
        for sender in senders.values():
            sender.wait_for_acks(ACKED)
        power_loss(five, "1", "--seed", "2")
    five.done("broker", "start", "1")
    assert wrong(five, senders, *TOPICS) == []


def test_the_death_of_every_process_takes_nothing(five: Cluster) -> None:
    before = loss_windows(five)
    with ExitStack() as undo:
        senders = sending(five, undo)
        for sender in senders.values():
            sender.wait_for_acks(ACKED)
        pids = [five.broker_pid(broker) for broker in range(3)]
        for pid in (*pids, controller_pid(five)):
            os.kill(pid, signal.SIGKILL)
    until(lambda: all(five.process("broker", one)["pid"] is None for one in range(3)), "all died")
    start_all(five)
    assert wrong(five, senders, *TOPICS) == []
    assert loss_windows(five) == before


def offset_of(cluster: Cluster, committer: Committer) -> int:
    """What its group committed last, once its coordinator has loaded that."""
    found: list[int | ErrorCode] = []

    def is_told() -> bool:
        found[:] = [committed_offset(cluster.bootstrap, committer.group, committer.topic)]
        return not isinstance(found[0], ErrorCode)

    until(is_told, f"what {committer.group} has committed")
    return int(found[0])


@pytest.mark.timeout(3_600)
def test_committed_offsets_and_transactions_outlive_the_power_of_all(
    five: Cluster, *, nightly: bool
) -> None:
    """The one that was under way counts in all its places, or in none."""
    for topic in ("both", "both-too"):
        create(five, topic, {"min.insync.replicas": "2", "flush.policy": "commit"})
    committer, transactor = Committer(five, "commit"), Transactor(five, "both")
    for seed in range(100 if nightly else 2):
        with committer.sending(), transactor.sending():
            committer.wait_for_acks(ACKED)
            transactor.wait_for_acks(5)
            power_loss(five, "--all", "--seed", str(seed))
        start_all(five)
        assert offset_of(five, committer) in range(committer.acked, committer.sent + 1)
        assert transactor.wrong() == []
    five.done("log", "verify")
