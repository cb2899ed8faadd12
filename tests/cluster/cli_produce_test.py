"""`tidelog produce` as a person and a script see it: summaries, JSON, exit codes, wrong use."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow

NUMBERS = "".join(f"{number}\n" for number in range(1, 11))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def shore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("shore")) as cluster:
        yield cluster


def test_lines_become_records(shore: Cluster, golden: Golden) -> None:
    shore.done("topic", "create", "tides")
    shore.done("topic", "create", "keyed", "-p", "3")
    (shore.folder / "lines.txt").write_text("from a file\n\nlast without newline")
    text = script(
        shore,
        ("produce tides", NUMBERS),
        ("produce tides --json", NUMBERS),
        ("produce tides --json", ""),
        ("produce tides", ""),
        ("produce tides --acks 0", NUMBERS),
        ("produce tides --acks 0 --json", NUMBERS),
        ("produce tides --acks 1", NUMBERS),
        "produce tides --file lines.txt --compression zstd",
        ("produce keyed --partition 2", NUMBERS),
        ("produce keyed -k buoy", NUMBERS),
        ("produce keyed --headers --key-separator =", "from:pier,n:1\tkey=value\n"),
        "consume keyed --partition 2 --max 1 --json",
        "consume keyed --offset -1:end --json",
        "consume tides --offset 50:end --json",
    )
    golden("cli_produce_lines", text)


def test_produce_that_cannot_be_done(shore: Cluster, golden: Golden) -> None:
    shore.done("topic", "create", "small", "-c", "max.message.bytes=200")
    text = script(
        shore,
        ("produce smaller", NUMBERS),
        ("produce bad/name", NUMBERS),
        ("produce small --partition 1", NUMBERS),
        ("produce small", "x" * 500),
        "produce small --file missing.txt",
        ("produce small --key-separator =", "a=1\nb\n"),
        ("produce small --headers", "no tab\n"),
        "topic offsets small",
        ("produce small --cluster other", NUMBERS),
        ("produce small --bootstrap 127.0.0.1:1", NUMBERS),
    )
    golden("cli_produce_refused", text)


def test_wrong_use_of_produce(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "produce",
        "produce a b",
        "produce a --acks 2",
        "produce a --partition -1",
        "produce a --compression rar",
        "produce a --key k --key-separator =",
        "produce a --key-separator ''",
        "produce a --transactional-id t --acks 1",
        "produce a --file .",
    )
    golden("cli_produce_wrong_use", text)


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_read_back(shore: Cluster, codec: str) -> None:
    topic = shore.create_topic()
    shore.done("produce", topic, "--compression", codec, text=NUMBERS)
    assert shore.done("consume", topic, "-o", "start:end").out == NUMBERS


def test_batches_too_large_for_the_topic_are_split(shore: Cluster) -> None:
    topic = shore.create_topic(configs={"max.message.bytes": "500"})
    lines = "".join(f"{number:060}\n" for number in range(100))
    shore.done("produce", topic, text=lines)
    assert shore.done("consume", topic, "-o", "start:end").out == lines


def test_a_line_is_written_before_the_input_ends(shore: Cluster) -> None:
    topic = shore.create_topic()
    with subprocess.Popen(
        [sys.executable, *shore.program, "produce", topic],
        cwd=shore.folder,
        env=shore.variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
        until(lambda: shore.done("consume", topic, "-o", "start:end").out == "now\n", "it is there")
        process.communicate("later\n", timeout=60)
    assert shore.done("consume", topic, "-o", "start:end").out == "now\nlater\n"


def test_many_lines_arrive_in_order_in_little_memory(shore: Cluster) -> None:
    topic = shore.create_topic()
    lines = "".join(f"{number:0100}\n" for number in range(200_000))
    summary = shore.done("produce", topic, "--json", text=lines).document
    assert summary["partitions"] == {"0": {"first_offset": 0, "last_offset": 199_999}}
    assert shore.done("consume", topic, "-o", "start:end").out == lines


def test_a_broker_killed_meanwhile_loses_nothing_that_was_said_to_be_written(
    fresh_cluster: Cluster,
) -> None:
    topic = fresh_cluster.create_topic()
    with subprocess.Popen(
        [sys.executable, *fresh_cluster.program, "produce", topic, "--json"],
        cwd=fresh_cluster.folder,
        env=fresh_cluster.variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        for number in range(100):
            process.stdin.write(f"{number}\n")
        process.stdin.flush()
        until(
            lambda: fresh_cluster.done("consume", topic, "-o", "start:end").out.count("\n") == 100,
            "the first lines are there",
        )
        fresh_cluster.done("broker", "kill", "0")
        for number in range(100, 200):
            process.stdin.write(f"{number}\n")
        process.stdin.flush()
        fresh_cluster.done("broker", "start", "0")
        out, _ = process.communicate(timeout=90)
    assert process.returncode == 0
    assert '"records": 200' in out
    expected = "".join(f"{number}\n" for number in range(200))
    assert fresh_cluster.done("consume", topic, "-o", "start:end").out == expected
