"""`tidelog group` and `wait stable` on a real cluster, with a consumer of each protocol."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow

STAMP_MS = 1_700_000_000_000
RECORDS = 10


@pytest.fixture(scope="module")
def quay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One topic of two partitions, ten records in each, a second apart."""
    with Cluster(tmp_path_factory.mktemp("quay"), brokers=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        with RawClient(cluster.bootstrap) as client:
            for at in range(RECORDS):
                for partition in (0, 1):
                    view = batch_of(b"x", timestamp=STAMP_MS + 1_000 * at)
                    produce(client, "orders", view, partition=partition)
        yield cluster


@contextmanager
def reading(cluster: Cluster, group: str, protocol: str) -> Iterator[Consumer]:
    """A consumer that has read everything, and committed it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "client.id": "reader",
        }
    )
    consumer.subscribe(["orders"])
    read = 0

    def has_all() -> bool:
        nonlocal read
        read += len(consumer.consume(100, 0.1))
        return read == 2 * RECORDS

    try:
        until(has_all, "all is read", 60)
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_described_and_is_not_reset(quay: Cluster, protocol: str) -> None:
    with reading(quay, f"g-{protocol}", protocol):
        name = f"g-{protocol}"
        assert quay.done("wait", "stable", name).out == f"stable: {name}, members 1\n"
        document = quay.done("group", "describe", name, "--members", "--offsets", "--json").document
        assert (document["type"], document["state"]) == (protocol, "Stable")
        (member,) = document["members"]
        assert member["assigned"] == {"orders": [0, 1]}
        assert (member["client_id"], member["host"]) == ("reader", "/127.0.0.1")
        assert [(row["current"], row["end"], row["lag"]) for row in document["offsets"]] == [
            (RECORDS, RECORDS, 0)
        ] * 2
        assert {row["owner"] for row in document["offsets"]} == {member["member_id"]}
        everything = ("--all-topics", "--to-earliest", "--execute")
        refused = quay.command("group", "reset-offsets", name, *everything)
        assert (refused.code, "has 1 member: stop them first" in refused.err) == (1, True)
        refused = quay.command("group", "delete", name, "--yes")
        assert (refused.code, "it has members: stop them first" in refused.err) == (1, True)
        listed = quay.done("group", "list", "--json").document["groups"]
        assert {"name": name, "type": protocol, "protocol_type": "consumer", "state": "Stable"} in (
            listed
        )
        shown = quay.done("group", "describe", name, "--members", "--verbose", "--state").out
        assert "orders:0,1" in shown
        assert protocol in shown


def test_offsets_are_reset_in_every_form(
    quay: Cluster, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    with reading(quay, "billing", "consumer"):
        pass
    file = tmp_path / "offsets.csv"
    text = script(
        quay,
        "group describe billing",
        "group describe billing --state",
        "group reset-offsets billing --all-topics --to-earliest",
        "group reset-offsets billing --topic orders:1 --to-offset 4 --execute",
        "group describe billing",
        "group reset-offsets billing --topic orders --to-offset 99 --execute --json",
        "group reset-offsets billing --topic orders --shift-by -3 --execute",
        "group reset-offsets billing --topic orders --shift-by -9",
        "group reset-offsets billing --topic orders --to-datetime 2023-11-14T22:13:25Z",
        "group reset-offsets billing --topic orders --to-datetime 2023-11-14T22:13:25.500",
        "group reset-offsets billing --topic orders --to-latest --json",
        "group reset-offsets billing --topic orders --by-duration PT1H",
        "group reset-offsets billing --all-topics --to-current --export",
    )
    exported = quay.done(
        "group", "reset-offsets", "billing", "--all-topics", "--to-current", "--export"
    ).out
    file.write_text(exported.replace(",7", ",2"), encoding="utf-8")
    quay.done("group", "reset-offsets", "billing", "--from-file", str(file), "--execute")
    text += script(
        quay,
        "group describe billing --json",
        "group reset-offsets fresh --topic orders:0 --to-latest --execute",
        "group reset-offsets fresh --topic orders --shift-by 1",
        "group reset-offsets fresher --all-topics --to-latest",
        "group reset-offsets billing --topic orders",
        "group reset-offsets billing --topic orders --to-latest --to-earliest",
        "group reset-offsets billing --to-latest",
        "group reset-offsets billing --topic orders --to-datetime soon",
        "group reset-offsets billing --topic orders --by-duration 1h",
        "group reset-offsets billing --topic orders:9 --to-latest",
        "group reset-offsets billing --topic order --to-latest",
        "group delete fresh",
        "group delete fresh --yes",
        "group delete fresh --yes",
        "group describe bilking",
        "wait stable billing --timeout 0",
        "wait stable nobody --timeout 0",
    )
    golden("cli_group", text)


FORMS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "3"),
    ("--to-datetime", "2023-11-14T22:13:25Z"),
    ("--by-duration", "PT1H"),
    ("--shift-by", "-2"),
    ("--from-file", "offsets.csv"),
)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_of_a_group_at_work_every_form_is_tried_and_none_done(quay: Cluster, protocol: str) -> None:
    name = f"busy-{protocol}"
    (quay.folder / "offsets.csv").write_text("orders,0,1\norders,1,2\n", encoding="utf-8")
    with reading(quay, name, protocol):
        quay.done("wait", "stable", name)
        for form in FORMS:
            where = () if form[0] == "--from-file" else ("--topic", "orders")
            words = ("group", "reset-offsets", name, *where, *form)
            rows = quay.done(*words, "--json").document["offsets"]
            assert len(rows) == 2, form
            assert len(quay.done(*words, "--export").out.splitlines()) == 2, form
            refused = quay.command(*words, "--execute")
            assert (refused.code, "stop them first" in refused.err) == (1, True), form
        rows = quay.done("group", "describe", name, "--json").document["offsets"]
        assert [row["current"] for row in rows] == [RECORDS, RECORDS]
    for form in FORMS:
        where = () if form[0] == "--from-file" else ("--topic", "orders")
        words = ("group", "reset-offsets", name, *where, *form)
        wanted = [row["new"] for row in quay.done(*words, "--json").document["offsets"]]
        quay.done(*words, "--execute")
        rows = quay.done("group", "describe", name, "--json").document["offsets"]
        assert [row["current"] for row in rows] == wanted, form


def test_a_group_is_stable_for_who_waits_in_json(quay: Cluster) -> None:
    with reading(quay, "waited", "consumer"):
        said = json.loads(quay.done("wait", "stable", "waited", "--json").out)
    assert said == {"version": 1, "group": "waited", "type": "consumer", "members": 1}


def test_groups_are_listed_and_deleted(tmp_path: Path, golden: Golden) -> None:
    with Cluster(tmp_path, brokers=1) as cluster:
        cluster.done("topic", "create", "orders")
        for name in ("billing", "shipping"):
            words = ("--topic", "orders", "--to-latest", "--execute")
            cluster.done("group", "reset-offsets", name, *words)
        text = script(
            cluster,
            "group list",
            "group delete billing --yes --json",
            "group list --json",
        )
    golden("cli_group_list", text)
