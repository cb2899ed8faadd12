"""`tidelog txn`, `why txn`, and what is pending of groups: the same on Apache Kafka and on ours."""

import itertools
import re
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from harness.clients.raw_socket import RawClient
from harness.clients.raw_transactions import RawTransactions, ours
from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script
from tidelog.clients.admin.open_transactions import look, open_transactions
from tidelog.clients.admin.transactions import State
from tidelog.clients.cluster_view import refresh
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import WallMs
from tidelog.tools.connecting import connected
from tidelog.tools.output import Target
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

SETTINGS = {
    **TRANSACTIONS,
    # So that a late record is taken, as brokers did before they asked the coordinator.
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
}
_MASKS = (
    (r'"(started_ms|age_ms|idle_ms|last_timestamp)": \d+', r'"\1": MS'),
    (r"\d+\.\d min\b", "N min"),
    (r"(--bootstrap )\S+:PORT", r"\1HOST:PORT"),
    # Ours counts its coordinators from 1, and says more of what it refuses.
    (r'("coordinator_epoch": )\d+', r"\1N"),
    (r": batch of \d+ bytes; max.message.bytes=\d+", ""),
    # Producer ids, which are given out in the order in which tests run: in sentences, in JSON, and
    # in the tables of list, hanging and why.
    (r"(producer(?: |  |_id\": |-id ))\d+", r"\1ID"),
    (r"(?m)(  (?:Ongoing|Empty|Complete\w+)  )\d+", r"\1ID"),
    (r"(?m)^( *(?:[a-z]+  \d+  )?\d+  )\d+(  \d+  N s)", r"\1ID\2"),
)


def comparable(text: str) -> str:
    """Without what is another in each run."""
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


def now() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)


@contextmanager
def kafka(factory: pytest.TempPathFactory) -> Iterator[str]:
    """The original."""
    settings = {
        **SETTINGS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    }
    with kafka_node(factory.mktemp("kafka"), settings) as bootstrap:
        yield bootstrap


@contextmanager
def tidelog(factory: pytest.TempPathFactory) -> Iterator[str]:
    """Ours."""
    with Cluster(factory.mktemp("ours"), brokers=1, settings=SETTINGS) as cluster:
        yield cluster.bootstrap


PEERS = [kafka, pytest.param(tidelog, marks=ours)]


@pytest.fixture(scope="module", params=PEERS, ids=["kafka", "tidelog"])
def port(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Commands that are about one node of either, which they know by its address alone."""
    with request.param(tmp_path_factory) as bootstrap:
        yield Cluster(
            tmp_path_factory.mktemp("port"),
            environment={"TIDELOG_BOOTSTRAP": bootstrap},
            bootstrap=bootstrap,
        )


@pytest.fixture
def raw(port: Cluster) -> Iterator[RawClient]:
    with RawClient(port.bootstrap) as client:
        yield client


_OURS = "'(billing-1|shipping)'"


def test_transactions_are_listed_described_and_aborted(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    port.done("topic", "create", "orders", "-p", "2")
    text = script(
        port,
        f"txn list --pattern {_OURS}",
        f"txn list --pattern {_OURS} --json",
        "txn describe billing-1",
    )
    billing = RawTransactions(raw, "billing-1")
    billing.write("orders", b"a", b"b", timestamp=now())
    billing.write("orders", b"c", partition=1, timestamp=now())
    other = RawTransactions(raw, "shipping")
    text += script(
        port,
        f"txn list --pattern {_OURS}",
        f"txn list --state ongoing --pattern {_OURS}",
        f"txn list --state Empty --state PrepareCommit --pattern {_OURS} --json",
        f"txn list --running-longer-than 1h --pattern {_OURS}",
        f"txn list --running-longer-than 0s --pattern {_OURS}",
        f"txn list --producer-id {other.producer_id}",
        "txn describe billing-1",
        "txn describe billing-1 shipping --json",
        "txn describe biling-1",
        "why txn billing-1",
        "why txn billing-1 --json",
        "why partition orders:0",
        "why partition orders:1 --json",
        "txn abort billing-1",
        "txn abort orders:0 --start-offset 0 --yes",
        "txn abort orders:0 --start-offset 1 --yes",
        "txn abort billing-1 --yes",
        "txn abort billing-1 --yes",
        "why txn billing-1",
        "why partition orders:0",
    )
    other.write("orders", b"d", timestamp=now())
    text += script(port, "txn abort shipping --yes --json")
    golden("cli_txn_life", comparable(text))
    assert billing.late("orders", b"e", timestamp=now()) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_hanging_transaction_is_found_and_ended_by_the_line_that_is_printed(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    """A record that comes after its transaction's marker begins one that nobody ends."""
    port.done("topic", "create", "tides", "-p", "2")
    lost = RawTransactions(raw, "tide-1")
    lost.write("tides", b"a", timestamp=now())
    lost.end(committed=False)
    assert port.command(*_HANGING).code == 0
    assert lost.late("tides", b"b", b"c", timestamp=now()) is ErrorCode.NONE
    text = script(
        port,
        "txn hanging --topic tides",
        "txn hanging --max-timeout 0s --topic tides",
        "txn hanging --max-timeout 0s --topic tides --broker 0 --json",
        "why txn tide-1",
        "why partition tides:0",
        "consume tides -o start:end --isolation read_committed",
        "txn abort tides:0 --start-offset 2",
    )
    (said,) = re.findall(r"try: tidelog (txn abort .*)", port.command(*_HANGING).out)
    ended = port.done(*shlex.split(said), "--yes")
    text += ended.out
    text += script(
        port,
        "txn hanging --max-timeout 0s --topic tides",
        "why txn tide-1",
        "txn abort tides:0 --start-offset 2 --yes",
        "topic offsets tides",
    )
    golden("cli_txn_hanging", comparable(text))


_HANGING = ("txn", "hanging", "--max-timeout", "0s", "--topic", "tides")


def test_a_transaction_of_a_producer_that_nobody_knows_hangs_and_is_ended_by_its_producer(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    port.done("topic", "create", "wrecks")
    ghost = RawTransactions(raw, "ghost")
    ghost.producer_id += 100_000
    assert ghost.late("wrecks", b"a", timestamp=now()) is ErrorCode.NONE
    text = script(port, "txn hanging --max-timeout 0s --topic wrecks", "why partition wrecks:0")
    producer = f"{ghost.producer_id}"
    told = port.done("txn", "abort", "wrecks:0", "--producer-id", producer, "--yes", "--json").out
    text += told + script(port, "txn hanging --max-timeout 0s --topic wrecks --json")
    golden("cli_txn_unknown_producer", comparable(text))


def test_a_transaction_that_its_coordinator_forgot_to_end_is_found_and_ended(
    port: Cluster, raw: RawClient, golden: Golden, request: pytest.FixtureRequest
) -> None:
    """Kafka's node looks for those that are over their time once an hour; ours would end them."""
    if request.node.callspec.id != "kafka":
        pytest.skip("nothing is overdue here")
    port.done("topic", "create", "delays")
    slow = RawTransactions(raw, "slow", timeout_ms=1_000)
    slow.write("delays", b"a", timestamp=now())
    find = ("txn", "hanging", "--topic", "delays")
    assert port.command(*find).code == 0
    until(lambda: port.command(*find).code == 5, "it is over its time", 60)
    text = script(port, " ".join(find), "why txn slow", "why partition delays:0")
    (said,) = re.findall(r"try: tidelog (txn abort .*)", port.command(*find).out)
    port.done(*shlex.split(said), "--yes")
    text += script(port, " ".join(find), "consume delays -o start:end --isolation read_committed")
    golden("cli_txn_overdue", comparable(text))


def test_what_cannot_be_found_or_understood_is_told(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    port.done("topic", "create", "charts")
    RawTransactions(raw, "surveyor")  # a cluster without any looks at no pattern
    text = script(
        port,
        "txn",
        "txn list --state ongo",
        "txn list --pattern [",
        "txn list --running-longer-than soon",
        "txn describe nobody",
        "txn abort nobody --yes",
        "txn abort charts:0 --yes",
        "txn abort charts:0 --start-offset 4 --yes",
        "txn abort charts:0 --producer-id 4 --yes",
        "txn abort charts:7 --start-offset 4 --yes",
        "txn abort chart:0 --start-offset 4 --yes",
        "txn abort charts --start-offset 4 --yes",
        "txn abort nobody --force --yes",
        "txn hanging --broker 0",
        "txn hanging --topic chart",
        "txn hanging --broker 7",
        "txn hanging --max-timeout soon",
        "why txn nobody",
        "why partition charts:7",
        "why partition chart:0",
    )
    golden("cli_txn_refused", comparable(text))


def test_offsets_that_a_transaction_commits_are_pending_until_it_ends(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    port.done("topic", "create", "inputs")
    port.done("produce", "inputs", text="a\nb\nc\n")
    words = ("--topic", "inputs", "--to-earliest", "--execute")
    port.done("group", "reset-offsets", "readers", *words)
    mover = RawTransactions(raw, "mover")
    mover.commit_offset("readers", "inputs", 2)
    text = script(
        port,
        "group describe readers",
        "group describe readers --json",
        "txn describe mover",
        "why txn mover",
    )
    mover.end(committed=True)
    text += script(port, "group describe readers")
    golden("cli_txn_pending_offsets", comparable(text))


def test_lines_are_written_as_one_transaction_or_not_at_all(
    port: Cluster, raw: RawClient, golden: Golden
) -> None:
    port.done("topic", "create", "bills", "-c", "max.message.bytes=500")
    produce = "produce bills --transactional-id bills-1"
    read = "consume bills -o start:end --isolation"
    text = script(
        port,
        (produce, "a\nb\n"),
        (produce, f"c\n{'x' * 900}\nd\n"),
        (f"{produce} --key-separator =", "e=1\nf\n"),
        (f"{produce} --transaction-timeout 2h", "g\n"),
        (f"{produce} --transaction-timeout soon", "g\n"),
        (f"{produce} --acks 1", "g\n"),
    )
    holder = RawTransactions(raw, "bills-1")
    holder.write("bills", b"held", timestamp=now())
    text += script(port, (f"{produce} --json", "h\n"))
    until(lambda: holder.state() == State.COMPLETE_COMMIT, "its marker is written")
    text += script(
        port,
        f"{read} read_uncommitted",
        f"{read} read_committed",
        "txn list --state CompleteCommit --pattern bills-1",
    )
    golden("cli_txn_produce", comparable(text))
    assert holder.late("bills", b"late", timestamp=now()) is ErrorCode.INVALID_PRODUCER_EPOCH


# -- many at once -------------------------------------------------------------------------------


def busy(bootstrap: str, topic: str, name: str, ended: threading.Event) -> None:
    """One short transaction after the other, in every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    for number in itertools.count():
        if ended.is_set():
            return
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"v", partition=partition)
        # Else an abort may come before its partitions have joined, and Kafka refuses that.
        producer.flush(20)
        if number % 3:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)


def test_transactions_that_come_and_go_never_seem_to_hang(port: Cluster) -> None:
    """Leaders and coordinators are asked one after the other: one look alone is often wrong."""
    port.done("topic", "create", "crowd", "-p", "2")
    ended = threading.Event()
    names = [f"crowd-{number}" for number in range(3)]
    threads = [
        threading.Thread(target=busy, args=(port.bootstrap, "crowd", name, ended)) for name in names
    ]
    places = [("crowd", Partition(0)), ("crowd", Partition(1))]
    fooled = 0

    def is_often_fooled() -> bool:
        nonlocal fooled
        fooled += sum(one.hangs for one in client.run(look(client.view, now(), places)).found)
        found = client.run(open_transactions(client.view, now(), places)).found
        assert [one for one in found if one.hangs] == []
        return fooled >= 20

    with connected(Target(bootstrap=port.bootstrap)) as client:
        client.run(refresh(client.view, ["crowd"]))
        for thread in threads:
            thread.start()
        try:
            until(is_often_fooled, "one look alone is wrong 20 times", 60)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
