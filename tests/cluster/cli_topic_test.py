"""`tidelog topic` as a person and a script see it: tables, JSON, exit codes, wrong use."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import heard, script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose topics are all of this file's making."""
    with Cluster(tmp_path_factory.mktemp("shore")) as cluster:
        yield cluster


def test_topics_from_their_making_to_their_end(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "topic list",
        "topic list --json",
        "topic create orders -p 3 -c retention.ms=60000",
        "topic create audit bills --json",
        "topic create placed --assignment 0,0",
        "topics list",
        "topic list --json",
        "topic describe orders",
        "topic describe orders --json",
        "topic describe placed audit",
        "topic describe --under-replicated",
        "topic describe --unavailable --json",
        "topic delete audit bills --yes",
        "topic delete placed --yes --json",
        "topic list",
    )
    golden("cli_topic_life", text)


def test_topics_that_cannot_be(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "topic create harbour",
        "topic create harbour fresh",
        "topic create harbour --json",
        "topic create bad/name",
        "topic create many -r 3",
        "topic create odd -c no.such.setting=1",
        "topic create odd -c retention.ms=soon",
        "topic describe harbor",
        "topic delete harbor --yes",
        "topic delete fresh --yes",
    )
    golden("cli_topic_refused", text)


def test_wrong_use_of_topic(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "topic",
        "topic lst",
        "topic create",
        "topic create t -p 0",
        "topic create t -r none",
        "topic create t -c retention.ms",
        "topic create t --assignment 0:1,1",
        "topic create t --assignment 0 -p 1",
        "topic create t --partition 3",
        "topic delete",
        "topic describe --all",
        "topic list --bootstrap nowhere:port",
        "topic list --bootstrap ,",
    )
    golden("cli_topic_wrong_use", text)


def test_a_cluster_that_is_not_there(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "topic list --cluster other",
        "topic list --bootstrap 127.0.0.1:1",
        "topic list --bootstrap nowhere.invalid",
    )
    golden("cli_topic_unreachable", text)


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "delete", "kept"],
        ["topic", "empty", "kept"],
        ["topic", "delete-records", "kept", "--partition", "0", "--before-offset", "end"],
    ],
    ids=lambda words: str(words[1]),
)
def test_what_destroys_asks_on_a_terminal_and_nowhere_else(
    shore: Cluster, words: list[str]
) -> None:
    shore.done("topic", "create", "kept")
    shore.done("produce", "kept", text="record\n")
    elsewhere = shore.command(*words)
    assert elsewhere.code == 2
    assert "add --yes" in elsewhere.err
    assert _typed(shore, b"n\n", *words) == 130
    assert shore.done("consume", "kept", "-o", "start:end").out == "record\n"
    assert _typed(shore, b"y\n", *words) == 0
    left = shore.command("consume", "kept", "-o", "start:end")
    assert (left.code, left.out) in {(0, ""), (3, "")}
    shore.command("topic", "delete", "kept", "--yes")


def _typed(cluster: Cluster, keys: bytes, *words: str) -> int:
    """The exit code of a command whose standard input is a terminal, after these keys."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, *cluster.program, *words],
            cwd=cluster.folder,
            env=cluster.variables(),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            os.write(ours, keys)
            process.communicate(timeout=60)
            return process.returncode
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_help_of_topic_begins_with_examples(shore: Cluster) -> None:
    for words in (["topic"], ["topic", "create"], ["topic", "describe"], ["produce"], ["consume"]):
        assert heard(shore, *words, "--help").out.startswith("Examples:\n  "), words
