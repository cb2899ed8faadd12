"""What is told of transactions on a cluster of ours that loses who is needed to end them."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.clients.raw_transactions import ours
from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script
from tidelog.clients.admin.coordinators import KeyType, find_coordinator
from tidelog.clients.admin.fencing import fence_producers
from tidelog.clients.client import Client
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.tools.connecting import connected
from tidelog.tools.output import Target
from tidelog.wire.records import Record

pytestmark = [pytest.mark.slow, ours]

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
}
"""Each broker alone keeps a third of the transactional ids."""
_MASKS = (
    (r"\d+\.\d min\b", "N min"),
    (r'"(started_ms|age_ms|idle_ms)": \d+', r'"\1": MS'),
    (r"(producer(?: |  |_id\": ))\d+", r"\1ID"),
    (r"(?m)^( *\d+  )\d+(  \d+  N s)", r"\1ID\2"),
    (r"\btide-\d+", "tide-N"),
)


def comparable(text: str) -> str:
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; one of them alone has partition 0 of a topic."""
    folder = tmp_path_factory.mktemp("delta")
    with Cluster(folder, brokers=3, settings=SETTINGS) as cluster:
        cluster.done("topic", "create", "wide", "--assignment", "2,0")
        yield cluster


def id_at(client: Client, broker: int) -> str:
    """A transactional id that this broker coordinates."""
    names = (f"tide-{number}" for number in range(100))
    return next(
        name
        for name in names
        if client.run(find_coordinator(client.view, name, KeyType.TRANSACTION)) == broker
    )


def begun(client: Client, name: str) -> TransactionalProducer:
    """With a record in each partition."""
    producer = TransactionalProducer(client, ProducerSettings(transactional_id=name))
    producer.open("wide")
    producer.begin()
    for partition in (0, 1):
        stamp = time.time_ns() // 1_000_000
        producer.send("wide", Record(0, stamp, None, b"a"), Partition(partition))
    producer.flush()
    return producer


def test_a_transaction_waits_for_the_partition_that_nobody_leads(
    delta: Cluster, golden: Golden
) -> None:
    with connected(Target(bootstrap=delta.bootstrap)) as client:
        name = id_at(client, 0)
        producer = begun(client, name)
        text = script(delta, "why partition wide:0", "why partition wide:1 --json")
        delta.done("broker", "kill", "2")
        producer.commit()
        delta.until_heard()
        read = ("consume", "wide", "--partition", "1", "-o", "start:end")
        committed = (*read, "--isolation", "read_committed")
        until(lambda: delta.done(*committed).out == "a\n", "the other partition has heard of it")
        text += script(
            delta,
            f"txn describe {name}",
            f"why txn {name}",
            f"why txn {name} --json",
            "why partition wide:0",
            "consume wide --partition 1 -o start:end --isolation read_committed",
            "txn hanging --topic wide",
            f"txn abort {name} --yes",
        )
        delta.done("broker", "start", "2")
        until(lambda: "it was committed" in delta.done("txn", "describe", name).out, "it is over")
        text += script(
            delta,
            f"why txn {name}",
            "consume wide --partition 0 -o start:end --isolation read_committed",
            "txn hanging --topic wide",
        )
    golden("cli_txn_waits", comparable(text))


def test_who_asks_while_nobody_coordinates_is_told_so_in_time(
    delta: Cluster, *, nightly: bool
) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(connected(Target(bootstrap=delta.bootstrap)))
        name = id_at(client, 1)
        producer = begun(client, name)
        producer.commit()
        delta.done("txn-coordinator", "kill")
        assert delta.done("txn", "describe", name).out.startswith(f"transaction  {name}")
        delta.done("broker", "kill", "1")
        process = stack.enter_context(delta.open("txn", "describe", name))
        if nightly:
            out, said = process.communicate(timeout=120)
            assert (process.returncode, out) == (4, "")
            assert said.startswith("error: gave up after 30 s: no coordinator for")
            process = stack.enter_context(delta.open("txn", "describe", name))
        delta.done("broker", "start", "1")
        out, _ = process.communicate(timeout=120)
        assert out.startswith(f"transaction  {name}"), "who asks meanwhile waits for it"
        assert delta.done("txn", "describe", name).out.startswith(f"transaction  {name}")


def test_ids_of_all_brokers_are_one_list_also_when_one_of_them_is_gone(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "3"}
    with Cluster(tmp_path, brokers=3, settings=settings) as cluster:
        cluster.done("topic", "create", "wide", "--assignment", "0:1:2,0:1:2")
        with connected(Target(bootstrap=cluster.bootstrap)) as client:
            names = {id_at(client, broker): broker for broker in (0, 1, 2)}
            producers = [begun(client, name) for name in names]
        assert coordinators(cluster) == names
        cluster.done("broker", "kill", "1")
        cluster.until_heard()
        moved = coordinators(cluster)
        assert set(moved) == set(names)
        assert 1 not in moved.values()
        rows = cluster.done("txn", "describe", *names, "--json").document["transactions"]
        assert {row["transactional_id"]: row["coordinator"] for row in rows} == moved
        assert {row["state"] for row in rows} == {"Ongoing"}
        with connected(Target(bootstrap=cluster.bootstrap)) as client:
            again = client.run(fence_producers(client.view, names))
        for producer in producers:
            assert producer.identity is not None
            assert producer.identity.producer_id in {one.producer_id for one in again.values()}
        until(
            lambda: not cluster.command("txn", "hanging", "--max-timeout", "0s").code, "all ended"
        )


def coordinators(cluster: Cluster) -> dict[str, int]:
    rows = cluster.done("txn", "list", "--json").document["transactions"]
    return {row["transactional_id"]: row["coordinator"] for row in rows}
