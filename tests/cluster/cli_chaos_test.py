"""The chaos commands as a person and a script see them: texts, JSON, exit codes, wrong use."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden, told

pytestmark = pytest.mark.slow


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


def test_power_loss(running: Cluster, golden: Golden) -> None:
    running.create_topic("t")
    running.done("produce", "t", text="one record\n")
    text = told(
        running,
        ["chaos", "power-loss", "0", "--dry-run", "--seed", "1"],
        ["chaos", "power-loss", "0", "--seed", "1"],
        ["broker", "start", "0"],
        ["chaos", "power-loss", "0", "--seed", "1", "--json"],
        ["chaos", "power-loss"],
        ["chaos", "power-loss", "0", "--all"],
        ["chaos", "power-loss", "1"],
        ["chaos", "power-loss", "0", "--tier", "2"],
        ["chaos", "power-loss", "0", "--tier", "2", "--seed", "1"],
        ["chaos", "power-loss", "0", "--tier", "1"],
    )
    golden("cli_chaos_power_loss", without_checkpoints(text))


def without_checkpoints(text: str) -> str:
    """A directory's are written every few seconds, and may be among what is lost."""
    text = re.sub(r"\d+ changes? to \d+ files", "N changes to N files", text)
    text = re.sub(r'"files": \d+', '"files": N', text)
    of_directory = r"broker-0/log0/[a-z-]+-checkpoint(\.pending)?"
    text = re.sub(rf"^{of_directory} .*\n", "", text, flags=re.MULTILINE)
    return re.sub(rf'{{"file": "{of_directory}"[^}}]*}}(, )?', "", text)


def _topics(cluster: Cluster) -> int:
    return int(json.loads(cluster.done("status", "--json").out)["topics"])


def test_disks(running: Cluster, golden: Golden) -> None:
    """Nothing fails meanwhile that the broker cannot do without."""
    running.create_topic("t")
    running.done("produce", "t", text="one record\n")
    until(lambda: _topics(running) == 1, "the coordinator to count the topic")
    slow = ["chaos", "slow-disk", "0", "--file", "snapshot"]
    text = told(
        running,
        ["chaos", "status", "--json"],
        ["chaos", "io-error", "0", "--on", "read", "--partition", "t:0", "--once"],
        ["chaos", "io-error", "0", "--on", "fsync", "--file", "snapshot", "--for", "1h", "--json"],
        ["chaos", "io-error", "0", "--on", "read", "--log-dir", "log0", "--for", "1ms"],
        ["chaos", "full-disk", "0", "--at", "checkpoint", "--file", "index"],
        ["chaos", "full-disk", "0", "--file", "snapshot", "--json"],
        [*slow, "--delay", "1ms", "--fsync-delay", "2ms", "--rate", "9MB/s"],
        [*slow, "--rate", "2KiB/s", "--json"],
        ["chaos", "status"],
        ["status"],
        ["why", "broker", "0"],
        ["chaos", "heal", "0"],
        ["chaos", "heal", "--json"],
        ["chaos", "io-error"],
        ["chaos", "io-error", "0", "--once", "--for", "1s"],
        ["chaos", "io-error", "0", "--for", "soon"],
        ["chaos", "slow-disk", "0"],
        ["chaos", "slow-disk", "0", "--rate", "fast"],
        ["chaos", "slow-disk", "0", "--delay", "61s"],
        ["chaos", "io-error", "1"],
        ["chaos", "io-error", "0", "--log-dir", "log1"],
        ["chaos", "io-error", "0", "--partition", "t"],
        ["chaos", "io-error", "0", "--partition", "u:0"],
        ["chaos", "io-error", "0", "--partition", "t:1"],
        ["down"],
        ["chaos", "io-error", "0"],
    )
    golden("cli_chaos_disks", re.sub(r"20\d\d-\d\d-\d\dT[0-9:.]+Z", "TIME", text))


def test_corrupt(running: Cluster, golden: Golden) -> None:
    """Until the broker is asked for the batch it serves all else; nobody else has this topic."""
    running.create_topic("t")
    for word in ("one", "two"):
        running.done("produce", "t", text=f"{word} record\n")
    corrupt = ["chaos", "corrupt", "t:0", "--seed", "1"]
    text = told(
        running,
        [*corrupt, "--dry-run"],
        ["log", "verify", "t:0"],
        [*corrupt, "--offset", "1", "--json"],
        ["log", "verify", "t:0"],
        [*corrupt, "--how", "zero-page", "--file", "leader-epoch-checkpoint", "--dry-run"],
        [*corrupt, "--how", "truncate"],
        [*corrupt, "--how", "stray-page"],
        [*corrupt, "--file", "index"],
        [*corrupt, "--at", "4096"],
        [*corrupt, "--at", "1", "--offset", "1"],
        [*corrupt, "--file", "meta.properties", "--offset", "1"],
        [*corrupt, "--offset", "6"],
        ["chaos", "corrupt", "t"],
        ["chaos", "corrupt", "t:1"],
        ["chaos", "corrupt", "t:0", "--broker", "4"],
        ["chaos", "corrupt", "__cluster_metadata:0"],
        ["broker", "stop", "0"],
        [*corrupt, "--how", "truncate", "--offset", "0"],
        [*corrupt, "--how", "truncate", "--at", "0"],
    )
    # When a record was written, and so its batch's checksum, differs.
    text = re.sub(r"(?m)(  \d+  \d+)  [0-9a-f.]+  (?:[0-9a-f.]+|gone)  ", r"\1  OLD  NEW  ", text)
    text = re.sub(r'"(old|new)": "[0-9a-f]+"', r'"\1": "HEX"', text)
    golden("cli_chaos_corrupt", text)
