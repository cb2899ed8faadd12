"""`tidelog why group` on real clusters: whose death began a rebalance, and who kept the group."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.group_member import SESSION_MS
from harness.processes.group_soak import SETTINGS
from harness.processes.spoken import script

pytestmark = pytest.mark.slow

TOPIC = "tides"
PATIENT_MS = 60_000
MEMBER_GONE_S = SESSION_MS / 1000 + 30


class Reader:
    """One member in a process of its own."""

    def __init__(
        self, cluster: Cluster, group: str, name: str, kind: str, session_ms: int = SESSION_MS
    ) -> None:
        self.name = name
        journal = str(cluster.folder / f"{name}.jsonl")
        words = (cluster.bootstrap, group, TOPIC, journal, str(session_ms))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.processes.group_member", *words],
            env=cluster.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"join {name} {kind}\n".encode())
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def tides(folder: Path, brokers: int) -> Iterator[Cluster]:
    with Cluster(folder, brokers=brokers, settings=SETTINGS) as cluster:
        cluster.done("topic", "create", TOPIC, "--partitions", "4")
        yield cluster


def why(cluster: Cluster, group: str) -> dict[str, Any]:
    said: dict[str, Any] = cluster.done("why", "group", group, "--json").document
    return said


def is_shared(cluster: Cluster, group: str, *readers: Reader) -> bool:
    """All of them have something, and nobody else."""
    if cluster.command("group", "describe", group, "--json").code:
        return False
    said = why(cluster, group)
    owners = {one["client_id"] for one in said["partitions"]}
    return said["well"] and owners == {one.name for one in readers}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_who_was_killed_is_named_as_the_reason(tmp_path: Path, kind: str) -> None:
    with tides(tmp_path, 1) as cluster:
        with Reader(cluster, "g", "one", kind) as one, Reader(cluster, "g", "two", kind) as two:
            until(lambda: is_shared(cluster, "g", one, two), "both read", 60)
            two.process.kill()
            until(lambda: is_shared(cluster, "g", one), "one reads all", MEMBER_GONE_S)
            said = why(cluster, "g")
        latest = said["rebalances"][-1]
        assert latest["trigger"] == "session time-out"
        assert (latest["client_id"], latest["host"]) == ("two", "/127.0.0.1")
        assert (latest["outcome"], latest["last"]["client_id"]) == ("done", "one")
        assert latest["seconds"] == pytest.approx(sum(latest["phases"].values()), abs=0.002)
        assert "two (127.0.0.1) was silent for its session time-out" in said["sentence"]
        for place in said["partitions"]:
            assert (place["client_id"], place["owned_since"] is not None) == ("one", True)
        cluster.stop()
        down = why(cluster, "g")
        assert down["reasons"][0]["code"] == "cluster-down"
        assert down["rebalances"][: len(said["rebalances"])] == said["rebalances"]


def test_a_rebalance_says_whom_it_waits_for_and_that_its_coordinator_went(tmp_path: Path) -> None:
    with (
        tides(tmp_path, 3) as cluster,
        Reader(cluster, "g", "one", "classic", PATIENT_MS) as one,
        Reader(cluster, "g", "two", "classic", PATIENT_MS) as two,
    ):
        until(lambda: is_shared(cluster, "g", one, two), "both read", 60)
        first = why(cluster, "g")["coordinator"]
        with stopped(one):
            three = Reader(cluster, "g", "three", "classic", PATIENT_MS)
            waits = "three (127.0.0.1) joined; it waits for one (127.0.0.1)"
            until(lambda: waits in why(cluster, "g")["sentence"], "it is told whom for", 60)
            cluster.done("broker", "kill", str(first))
        with three:
            until(lambda: is_shared(cluster, "g", one, two, three), "all three read", 60)
            said = why(cluster, "g")
        assert said["coordinator"] != first
        gone = [row for row in said["rebalances"] if row["outcome"] == "coordinator gone"]
        assert [(row["broker"], row["client_id"]) for row in gone] == [(f"broker-{first}", "three")]
        assert said["rebalances"][0]["broker"] == f"broker-{first}"
        assert said["rebalances"][-1]["broker"] == f"broker-{said['coordinator']}"


@contextmanager
def stopped(reader: Reader) -> Iterator[None]:
    reader.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        reader.process.send_signal(signal.SIGCONT)


def test_what_a_person_reads(tmp_path: Path, golden: Golden) -> None:
    with tides(tmp_path, 1) as cluster:
        words = ("--topic", TOPIC, "--to-latest", "--execute")
        cluster.done("group", "reset-offsets", "fresh", *words)
        with Reader(cluster, "billing", "reader", "consumer") as reader:
            until(lambda: is_shared(cluster, "billing", reader), "it reads all", 60)
            text = script(cluster, "why group billing", "why group fresh")
            text += script(cluster, "why group billing --json", "why group fresh --json")
            text += script(
                cluster,
                "why group billin",
                "why group",
                f"why group fresh --bootstrap {cluster.bootstrap}",
            )
            cluster.stop()  # while it has its member, which is missed soon
        text += script(cluster, "why group billing", "why group nobody", "why group g --cluster x")
    golden("cli_why_group", masked(text))


def masked(text: str) -> str:
    """Clients draw their ids, and nothing takes as long as the last time."""
    text = re.sub(r'"(owner|member_id)": "[^"]+"', r'"\1": "ID"', text)
    return re.sub(r'"(gathering_s|sharing_s|commit_age_s)": [\d.]+', r'"\1": S', text)
