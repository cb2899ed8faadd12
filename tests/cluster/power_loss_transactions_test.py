"""Named scenario 5.20, its transactions: what a power loss of all leaves of one that was prepared,
and of the logs that say what became of it.

Under `commit` it is decided one way everywhere. Under `os` each partition is a part from the front
of what it was, and what is decided follows from these parts alone; where that leaves a transaction
to nobody, `txn hanging` names it and the command that ends it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import RawProducer, committed_offset, end_of, leader, recorded
from harness.faults.chaos import log_bytes
from harness.faults.paced import command_here, disk_rows, kept_log, window_of
from harness.faults.power import (
    COMMIT_MARKER,
    assert_replicas_equal,
    create,
    is_decided,
    start_all,
)
from harness.processes.cluster import Cluster, until
from harness.processes.transaction_checks import told_by, wrong_transactions
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import ProducerId
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import iterate_batches, iterate_records
from tidelog.wire.transactions import STATE_TOPIC

pytestmark = pytest.mark.slow

SETTINGS = {
    "flush.policy": "commit",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
GROUP, OFFSET = "readers", 899
SEEDS = range(120)
IDS = 12
ROUNDS = 5


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("transactions")
    with Cluster(folder, brokers=3, settings=SETTINGS) as running:
        yield running


def topics(cluster: Cluster, name: str) -> tuple[str, str]:
    found = f"{name}-a", f"{name}-b"
    for topic in found:
        create(cluster, topic, {"min.insync.replicas": "2"})
    for topic in found:
        cluster.done("wait", "isr", topic)
    return found


def cut(cluster: Cluster, seed: int) -> None:
    command_here(cluster, "chaos", "power-loss", "--all", "--seed", str(seed))


# -- commit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_is_decided_one_way_everywhere(
    dark: Cluster, *, committed: bool
) -> None:
    """Its markers hang in the flush of one replica when the power goes, so nobody has heard that
    any of them is written."""
    name = "commits" if committed else "aborts"
    a, b = topics(dark, name)
    producer = RawProducer(dark.bootstrap, name).init()
    producer.write(a, b"one")
    producer.write(b, b"two")
    assert producer.add_offsets(f"{GROUP} {name}") is ErrorCode.NONE
    assert producer.commit_offset(f"{GROUP} {name}", a, OFFSET) is ErrorCode.NONE
    slow = ("--fsync-delay", "60s", "--partition", f"{b}:0", "--once")
    command_here(dark, "chaos", "slow-disk", "2", *slow)
    assert producer.end(committed=committed) is ErrorCode.NONE
    wanted = TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT
    assert recorded(dark.bootstrap, name)[-1].state is wanted
    cut(dark, seed=int(committed))
    start_all(dark)
    for topic in (a, b):
        until(partial(is_decided, dark, topic), f"{topic} is decided")
        assert_replicas_equal(dark, topic)
    told = told_by({f"{topic}-0": log_bytes(dark, 0, topic, 0) for topic in (a, b)})
    assert wrong_transactions(told, bumps=False) == []
    assert [[one.committed for one in log.markers] for log in told] == [[committed]] * 2
    offset = OFFSET if committed else -1
    until(
        lambda: committed_offset(dark.bootstrap, f"{GROUP} {name}", a) == offset,
        f"offset {offset} of {name}",
    )


# -- os -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """What the longest replicas kept."""

    states: Mapping[str, Transaction]
    """Of each transactional id, what the kept part of the transactions' log says last."""
    logs: Mapping[str, bytes]

    def outcomes(self, topic: str) -> dict[int, bool | None]:
        """What must become of each producer's transaction in this topic; None: nobody ends it.

        A marker that is there stays. Else the kept state decides, where it knows that the
        transaction is open here; what is not prepared is aborted by the id's next life.
        """
        found: dict[int, bool | None] = {}
        known = {one.producer_id: one for one in self.states.values()}
        for header, batch in iterate_batches(memoryview(self.logs[topic])):
            if header.producer_id < 0:
                continue
            state = known.get(ProducerId(header.producer_id))
            if header.is_control:
                found[header.producer_id] = is_commit(batch)
            elif state is None or not state.state.is_open or (topic, 0) not in state.partitions:
                found[header.producer_id] = None
            else:
                found[header.producer_id] = state.state is TxnState.PREPARE_COMMIT
        return found


def kept(cluster: Cluster, *names: str) -> Kept:
    logs = {
        name: max(kept_log(cluster, broker, name) for broker in range(cluster.brokers))[1]
        for name in (*names, STATE_TOPIC)
    }
    return Kept(states_in(logs.pop(STATE_TOPIC)), logs)


def states_in(log: bytes) -> dict[str, Transaction]:
    found: dict[str, Transaction] = {}
    for header, batch in iterate_batches(memoryview(log)):
        for one in [] if header.is_control else iterate_records(batch):
            said = records.read(one.key or b"", one.value)
            if said is not None and said.value is not None:
                found[said.transactional_id] = said.value
    return found


def is_commit(batch: memoryview) -> bool:
    (marker,) = iterate_records(batch)
    return (marker.key or b"")[-1:] == COMMIT_MARKER


def outcomes_now(cluster: Cluster, topic: str) -> dict[int, bool | None]:
    found: dict[int, bool | None] = {}
    for header, batch in iterate_batches(memoryview(log_bytes(cluster, 0, topic, 0))):
        if header.producer_id >= 0:
            found[header.producer_id] = is_commit(batch) if header.is_control else None
    return found


def test_under_os_what_is_decided_follows_from_what_is_left(dark: Cluster) -> None:
    places = topics(dark, "os")
    create(dark, "probe", {})
    transact(dark, 1, places)  # flushed, and the names of all files with it
    dark.done("config", "set", "broker", "all", "flush.policy=os")
    for topic in ("probe", *places):
        until(partial(is_unflushed, dark, topic), f"the policy of {topic} is in force")
    begun = {name: end_of(dark.bootstrap, name, isolation=0) for name in (*places, STATE_TOPIC)}
    lives, seed = lives_until_a_part_is_lost(dark, places, begun)
    cut(dark, seed)
    left = kept(dark, *places)
    start_all(dark)
    again = {RawProducer(dark.bootstrap, one.name).init().producer_id for one in lives}
    forgotten = {one.producer_id for one in lives if one.name not in left.states}
    assert again.isdisjoint(forgotten), "an id that is in the logs is given to nobody else"
    abandoned = {(topic, one) for topic in places for one in decided(dark, left, topic)}
    hanging = command_here(dark, "txn", "hanging", "--max-timeout", "0s", may=(0, 5))["hanging"]
    assert {(row["topic"], row["producer_id"]) for row in hanging} == abandoned
    for row in hanging:
        command_here(dark, "txn", "abort", *row["remedy"].split()[3:6], "--yes")
    assert all(is_decided(dark, topic) for topic in places)


def decided(cluster: Cluster, left: Kept, topic: str) -> list[int]:
    """As the kept parts say, on all replicas; the producers that nobody decides about."""
    wanted = left.outcomes(topic)
    until(partial(is_so, cluster, topic, wanted), f"{topic} is {wanted}")
    assert_replicas_equal(cluster, topic)
    assert log_bytes(cluster, 0, topic, 0).startswith(left.logs[topic])
    return [one for one, outcome in wanted.items() if outcome is None]


def is_so(cluster: Cluster, topic: str, wanted: Mapping[int, bool | None]) -> bool:
    return outcomes_now(cluster, topic) == wanted


def transact(cluster: Cluster, number: int, places: Sequence[str]) -> RawProducer:
    """Of three one commits, one aborts, and one stays open."""
    producer = RawProducer(cluster.bootstrap, f"os-{number}").init()
    for topic in places:
        producer.write(topic, b"%d" % number)
    if number % 3:
        assert producer.end(committed=number % 3 == 1) is ErrorCode.NONE
    return producer


def is_unflushed(cluster: Cluster, topic: str) -> bool:
    """One more record, which is acknowledged, and on nobody's stable storage."""
    with RawClient(leader(cluster.bootstrap, topic)) as raw:
        done = produce(raw, topic, batch_of(b"probe"))
    assert not done.error_code
    return all(row["durable_offset"] <= done.base_offset for row in disk_rows(cluster, topic))


def lives_until_a_part_is_lost(
    cluster: Cluster, places: Sequence[str], begun: Mapping[str, int]
) -> tuple[list[RawProducer], int]:
    """So many transactions, and a seed that takes a part of each log. If a broker happens to have
    flushed a log when all of them are written, there is nothing to lose of it: then more follow."""
    lives: list[RawProducer] = []
    for _ in range(ROUNDS):
        lives += [transact(cluster, len(lives) + number, places) for number in range(IDS)]
        seed = partial_loss(cluster, begun)
        if seed is not None:
            return lives, seed
    raise AssertionError("each seed takes all or nothing of some log")


def partial_loss(cluster: Cluster, begun: Mapping[str, int]) -> int | None:
    """A seed that leaves some of what came to each log since then, and not all."""
    for seed in SEEDS:
        words = ("chaos", "power-loss", "--all", "--dry-run", "--seed", str(seed))
        brokers = command_here(cluster, *words)["processes"][: cluster.brokers]
        if all(is_partial(brokers, name, start) for name, start in begun.items()):
            return seed
    return None


def is_partial(brokers: Sequence[Mapping[str, Any]], topic: str, start: int) -> bool:
    lost = [window_of(one, topic) for one in brokers]
    left = [one["left"] for one in lost if one is not None]
    return len(left) == len(lost) and max(left) > start
