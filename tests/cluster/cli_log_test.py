"""`tidelog log` as a person and a script see it, on a running and on a stopped cluster."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import heard, script
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Origin

pytestmark = pytest.mark.slow

TOOL = "org.apache.kafka.tools.DumpLogSegments"
STAMP_MS = 1_700_000_000_000
SEGMENT = f"{0:020d}.log"


@pytest.fixture(scope="module")
def pier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one topic of three segments, always the same bytes."""
    with Cluster(tmp_path_factory.mktemp("pier")) as cluster:
        cluster.done("wait", "ready")
        cluster.create_topic("tides", configs={"segment.bytes": "1048576"})
        cluster.create_topic("quiet")
        fill(cluster, "tides")
        yield cluster


def fill(cluster: Cluster, topic: str, *codecs: Codec) -> None:
    """Batches that differ in everything a dump shows."""
    with RawClient(cluster.bootstrap) as client:
        for at in range(24):
            values = [bytes([97 + at]) * 12_000 for _ in range(8)]
            origin = Origin(4, 0, 4 * (at - 1)) if at % 2 else Origin()
            codec = codecs[at % len(codecs)] if codecs else Codec.NONE
            stamp = STAMP_MS + 1_000 * at
            row = produce(
                client, topic, batch_of(*values, timestamp=stamp, origin=origin, codec=codec)
            )
            assert row.error_code == 0, row


def folder_of(cluster: Cluster, topic: str) -> Path:
    return cluster.data / "broker-0" / "log0" / f"{topic}-0"


def test_a_log_is_dumped_while_its_broker_runs(pier: Cluster, golden: Golden) -> None:
    folder = ".tidelog/default/broker-0/log0/tides-0"
    text = script(
        pier,
        "log dump tides:0 --segments",
        "log dump tides:0 -n 3",
        "log dump tides:0 --from-offset 100 -n 2 --json",
        "log dump tides:0 --deep --from-offset -1",
        f"log dump {folder}/{SEGMENT} --from-offset @2023-11-14T22:13:27 -n 1",
        f"log dump {folder}/00000000000000000080.index -n 2",
        f"log dump {folder}/00000000000000000080.timeindex -n 2 --json",
        f"log dump {folder}/00000000000000000080.snapshot --json",
        f"log dump {folder}/leader-epoch-checkpoint",
        f"log dump {folder}/partition.metadata --json",
    )
    metadata = script(pier, "log dump __cluster_metadata:0 --deep --from-offset 1 -n 2 --json")
    # How many records there are by now, and of how many bytes, is not this test's subject.
    text += re.sub(r'"(size|position|end_offset|batches)": \d+', r'"\1": N', metadata)
    for pattern, name in (
        (r"\b(?!17000000)\d{13}\b", "MS"),
        (r'"base64": "[^"]*"', '"base64": "BYTES"'),
        (r'"topic": "[\w-]{22}"', '"topic": "ID"'),
    ):
        text = re.sub(pattern, name, text)
    golden("cli_log_dump", text)


def test_wrong_use_of_log(pier: Cluster, golden: Golden) -> None:
    text = script(
        pier,
        "log",
        "log dmp",
        "log dump",
        "log dump tides",
        "log dump tides:1",
        "log dump tide:0",
        "log dump quiet:0",
        "log dump tides:0 --broker 1",
        "log dump tides:0 --from-offset soon",
        "log dump tides:0 --from-offset 1:2",
        "log dump .tidelog/defaut",
        "log dump .tidelog/default/logs",
        "log dump .tidelog/default/cluster.json",
        "log dump tides:0 --cluster other",
        "log verify nowhere/at/all",
        "log verify --cluster other",
    )
    golden("cli_log_wrong_use", text)


def test_verify_finds_nothing_on_a_running_cluster_nor_after_its_end(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("tides", configs={"segment.bytes": "1048576"})
        fill(cluster, "tides", *Codec)
        running = cluster.done("log", "verify", "--json").document
        assert (running["violations"], running["remarks"]) == ([], [])
        assert running["checked"]["partitions"] == 2
        assert running["checked"]["batches"] > 24
        cluster.kill_everything()
        killed = cluster.done("log", "verify", "--json").document
        assert (killed["violations"], killed["remarks"]) == ([], [])
        cluster.start()
        cluster.stop()
        stopped = cluster.done("log", "verify", "--json").document
        assert (stopped["violations"], stopped["remarks"]) == ([], [])
        for path in cluster.data.rglob("*"):
            assert path.name.endswith((".tmp", ".new")) is False


def test_verify_of_a_log_that_is_being_written_to(pier: Cluster) -> None:
    topic = pier.create_topic(configs={"segment.bytes": "1048576"})
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_much, pier.bootstrap, topic)
        looks = 0
        while not writing.done():
            found = heard(pier, "log", "verify", "--json")
            assert found.code == 0, found.out
            looks += 1
        writing.result()
    assert looks


def write_much(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap) as client:
        for at in range(1_500):
            produce(client, topic, batch_of(bytes(10_000), timestamp=STAMP_MS + at))


def test_damage_is_told_with_its_place(tmp_path: Path, golden: Golden) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("tides", configs={"segment.bytes": "1048576"})
        fill(cluster, "tides")
        cluster.stop()
        clean = script(cluster, "log verify tides:0", "log verify tides:0 --json")
        place = folder_of(cluster, "tides")
        with (place / SEGMENT).open("r+b") as file:
            file.seek(200_000)
            file.write(b"rot")
        (place / "letter.txt").touch()
        text = script(
            cluster,
            "log verify",
            "log verify --json",
            "log verify tides:0",
            f"log verify .tidelog/default/broker-0/log0/tides-0/{SEGMENT}",
            "log dump tides:0 -n 4",
        )
    # The whole cluster has a metadata log too: what is in it is not this test's subject.
    told = re.sub(r'"bytes": \d+', '"bytes": BYTES', clean + text)
    told = re.sub(r'(4 segments, |"segments": 4, "batches": )\d+', r"\1N", told)
    golden("cli_log_damage", told)


def test_what_is_dumped_is_what_kafka_reads(tmp_path: Path) -> None:
    """Offsets, positions, sizes and checksums, batch by batch, and each record's offset."""
    need_kafka()
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("tides", configs={"segment.bytes": "1048576"})
        fill(cluster, "tides", *Codec)
        place = folder_of(cluster, "tides")
        ours = [
            row
            for row in _documents(cluster, "log", "dump", "tides:0", "--json")
            if row["type"] == "batch"
        ]
        records = [
            row["offset"]
            for row in _documents(cluster, "log", "dump", "tides:0", "--deep", "--json")
            if row["type"] == "record"
        ]
        cluster.stop()
    files = ",".join(sorted(map(str, place.glob("*.log"))))
    said = run_tool(TOOL, "--files", files, "--deep-iteration").out
    theirs = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*position: (\d+) .*size: (\d+) "
        r".*compresscodec: (\w+) crc: (\d+) isvalid: true",
        said,
        re.MULTILINE,
    )
    names = ("base_offset", "last_offset", "records", "position", "size", "codec", "crc")
    assert [tuple(str(row[name]) for name in names) for row in ours] == theirs
    assert len(theirs) == 24
    assert records == [int(one) for one in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]


def _documents(cluster: Cluster, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in cluster.done(*words).out.splitlines()]


def test_a_copied_partition_is_checked_on_its_own(pier: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "tides-0"
    shutil.copytree(folder_of(pier, "tides"), copy)
    assert heard(pier, "log", "verify", str(copy), "--json").document["clean"] is True
    os.truncate(max(copy.glob("*.log")), 100)
    assert heard(pier, "log", "verify", str(copy)).code == 5


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        topic = cluster.create_topic()
        cluster.done("produce", topic, text="a\nb\n")
        cluster.kill_everything()
        before = _fingerprint(cluster.data)
        cluster.done("log", "verify")
        cluster.done("log", "dump", f"{topic}:0", "--deep")
        cluster.done("log", "dump", str(cluster.data))
        assert _fingerprint(cluster.data) == before
        cluster.start()
        cluster.stop()


def _fingerprint(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
