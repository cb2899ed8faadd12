"""Named scenario 5.20, all_replica_power_loss, with its own figures: 1,000 sends, 900 of them
acknowledged, and the power of all cut at once. `power_loss_readers_test.py` has the consumers.

Everything is decided on acknowledgements and on what brokers reported as durable. One bound is the
clock's, for the policy is: what `interval` may lose is what came in its 100 ms, and while one flush
was waited for and one ran, each as long as the ledgers say that flushes take here.
"""

import math
from collections.abc import Iterator

import pytest

from harness.faults.paced import Cut, command_here, cut_power
from harness.faults.power import create, log_of, loss_windows, start_all, wrong_after_power_loss
from harness.processes.cluster import Cluster
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.wire.metadata_records import PartitionView

pytestmark = pytest.mark.slow

SENDS, ACKED, RATE = 1_000, 900, 1_000
INTERVAL_MS = 100
CUTS_MAX = 5


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dark"), brokers=3) as running:
        command_here(running, "chaos", "power-loss", "--all", "--dry-run")  # loads its code
        yield running
        running.done("log", "verify")


def cut(cluster: Cluster, topic: str, seed: int, **configs: str) -> Cut:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    create(cluster, topic, {"min.insync.replicas": "2", **given})
    cluster.done("wait", "isr", topic)
    done = cut_power(cluster, topic, acked=ACKED, sends=SENDS, seed=seed)
    for reported, kept, window in zip(done.reported, done.kept, done.windows, strict=True):
        assert reported <= kept, "it was on stable storage"
        assert window is None or (window["left"] == kept and window["durable_offset"] <= kept)
    return done


def view(cluster: Cluster, topic: str) -> PartitionView:
    return open_folder(cluster.data).image.names[topic].partitions[0]


def recovered(cluster: Cluster, topic: str, done: Cut, *, loses_nothing: bool) -> int:
    """How many records are left: a part from the front, on all replicas the same. Under `commit`
    whoever is back first may lead; else it is as much as the longest of them kept."""
    start_all(cluster)
    wrong = wrong_after_power_loss(cluster, topic, [done.sender], loses_nothing=loses_nothing)
    assert wrong == []
    left = len(log_of(cluster, topic))
    assert left in (done.kept if loses_nothing else done.left), (left, done)
    return left


def said_aloud(cluster: Cluster, topic: str, done: Cut, left: int, limit: str) -> None:
    """The loss is flagged wherever somebody may look: the record, the log, `why`, the timeline."""
    window, lost = loss_windows(cluster)[topic], view(cluster, topic)
    assert (lost.lossy_elections, window.start) == (1, left)
    assert limit in window.at_most
    # All ended in the same epoch, so the longest log is the one with most.
    assert done.kept[window.leader] == left
    why = command_here(cluster, "why", "partition", f"{topic}:0")
    (reason,) = [one for one in why["reasons"] if one["code"] == "records-lost"]
    assert reason["sentence"].endswith(f"what may be lost began at {left}")
    story = command_here(cluster, "timeline", f"{topic}:0")["events"]
    (event,) = [one for one in story if one["event"] == "records_lost"]
    assert (event["leader"], event["from"]) == (window.leader, left)


def test_commit_loses_nothing_acknowledged(dark: Cluster) -> None:
    """At least 0-899 on all after recovery."""
    done = cut(dark, "commit", 1, flush_policy="commit")
    assert min(done.kept) >= ACKED
    assert recovered(dark, "commit", done, loses_nothing=True) >= ACKED
    assert (view(dark, "commit").lossy_elections, loss_windows(dark).get("commit")) == (0, None)


def test_interval_loses_what_came_last(dark: Cluster) -> None:
    """At 1,000 records a second 100 ms are 100 records: 800 are left, but for what came while a
    flush was waited for and ran. A machine that has much else to do may have a broker be late once;
    a policy that is not kept is late each time."""
    for attempt in range(CUTS_MAX):
        topic = f"interval-{attempt}"
        done = cut(dark, topic, attempt, flush_policy="interval", flush_ms=str(INTERVAL_MS))
        left = recovered(dark, topic, done, loses_nothing=False)
        said_aloud(dark, topic, done, left, f" {INTERVAL_MS} ms")
        meanwhile = math.ceil(2 * done.took_ms * RATE / 1_000)
        window = INTERVAL_MS * RATE // 1_000 + meanwhile
        if min(done.kept) >= ACKED - window and done.told_lost <= window:
            return
    pytest.fail(f"more was lost than {window} records, {CUTS_MAX} times: {done}")


def test_os_loses_a_suffix_and_says_so(dark: Cluster) -> None:
    """The kernel was asked for nothing, and this seed leaves no replica whole."""
    done = cut(dark, "os", 21, flush_policy="os")
    assert max(done.kept) < ACKED
    left = recovered(dark, "os", done, loses_nothing=False)
    said_aloud(dark, "os", done, left, "all that the kernel had not written back")
    assert done.told_lost >= ACKED - left
