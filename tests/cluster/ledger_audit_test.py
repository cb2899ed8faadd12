"""The durability ledger against a trace of every file call of a whole cluster.

Topics are made, written to, rolled, compacted, emptied, moved to other brokers and deleted; brokers
are killed and stopped, the coordinator is killed; then a clean end, and one that flushes
everything. On every file and every name both must say the same: the ledger claims no more, and
forgets no flush, but the one that a kill cut off.
"""

import json
from pathlib import Path

import pytest

from harness.clients.produce_raw import produce
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import leader
from harness.disks.ledger_audit import differences
from harness.disks.trace_replay import TracedDirectory, TracedFile
from harness.disks.traced import need_strace
from harness.disks.traced_cluster import TracedCluster
from harness.faults.power import create
from harness.processes.cluster import until
from tidelog.kernel.launch import ledgers_directory
from tidelog.node.ipc.ledger_layout import check_header
from tidelog.tools.chaos.losing import Victim, broker_victim, coordinator_victim, look
from tidelog.tools.chaos.survey import Survey, recorded, survey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.log_files import CLEANED_SUFFIX
from tidelog.wire.records import Record, build_batch

pytestmark = pytest.mark.slow

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "200",
}
CONFIGS = {"segment.bytes": "65536", "file.delete.delay.ms": "100"}


def test_the_ledger_and_the_system_calls_tell_the_same_of_every_file(tmp_path: Path) -> None:
    need_strace(tmp_path)
    cluster = TracedCluster(tmp_path / "c", brokers=2, settings=SETTINGS)
    with cluster.running():
        busy(cluster, "first")
        pid = cluster.broker_pid(1)
        cluster.done("broker", "kill", "1")
        cluster.wait_until_traced_dead(pid)
        cluster.follow()
        victim = victims(cluster)[1]
        run_id = cluster.runs[-1].run_id
        assert audited(cluster, look(run_id, victim), killed=True) == []
        cluster.done("broker", "start", "1")
        cluster.done("coordinator", "kill")
        busy(cluster, "second")
        move(cluster)
        cluster.stop()
    assert cluster.replay is not None
    assert cluster.replay.syncs > 50
    for victim in victims(cluster):
        assert audited(cluster, saved(cluster, victim)) == []
    with cluster.running():
        cluster.done("produce", "busy", text="again\n" * 500)
        cluster.stop("--sync")
    for victim in victims(cluster):
        found = saved(cluster, victim)
        assert audited(cluster, found) == []
        left = [one.path for one in found.files.values() if not one.is_stable]
        assert victim.role != "broker" or [path for path in left if not _is_rubbish(path)] == []
    assert is_stable(cluster, "cluster.json")


def _is_rubbish(path: str) -> bool:
    """What the next start removes: a segment below the start of `busy`, and what a compaction was
    at when its broker stopped."""
    return "/busy-0/0000" in path or path.endswith(CLEANED_SUFFIX)


def is_stable(cluster: TracedCluster, name: str) -> bool:
    """Of a file of the supervisor, which is told of every power loss and has none itself."""
    assert cluster.replay is not None
    folder, file = cluster.replay.at(str(cluster.data)), cluster.replay.at(f"{cluster.data}/{name}")
    assert isinstance(folder, TracedDirectory)
    assert isinstance(file, TracedFile)
    return folder.durable.get(name) is file and file.stable == file.size > 0


def busy(cluster: TracedCluster, gone: str) -> None:
    """Of three topics that stay, and one that does not."""
    if gone == "first":
        create(cluster, "busy", CONFIGS)
        create(cluster, "keys", CONFIGS | {"cleanup.policy": "compact"})
        create(cluster, "forced", CONFIGS | {"flush.policy": "commit"})
    create(cluster, gone, CONFIGS)
    for topic in ("busy", "keys", "forced", gone):
        with RawClient(leader(cluster.bootstrap, topic)) as raw:
            for _ in range(40):
                assert produce(raw, topic, keyed_batch()).error_code == 0
    words = ["--partition", "0", "--before-offset", "200", "--yes"]
    cluster.done("topic", "delete-records", "busy", *words)
    cluster.done("topic", "delete", gone, "--yes")


def move(cluster: TracedCluster) -> None:
    """One topic to a broker alone, which the other's files of it do not outlive, and back."""
    for replicas in ([1], [0], [0, 1]):
        row = {"topic": "keys", "partition": 0, "replicas": replicas}
        plan = json.dumps({"version": 1, "partitions": [row]})
        cluster.done("partition", "reassign", "apply", "-", "--wait", text=plan)
        until(lambda: is_taken(cluster, "keys"), "who leads it now takes a batch")
    cluster.done("wait", "isr", "keys")


def is_taken(cluster: TracedCluster, topic: str) -> bool:
    """Not by who led it until now: the brokers hear of a move one after the other."""
    with RawClient(leader(cluster.bootstrap, topic)) as raw:
        code = ErrorCode(produce(raw, topic, keyed_batch()).error_code)
    assert code in {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, code
    return code is ErrorCode.NONE


def keyed_batch() -> bytearray:
    """Some 5 KB; the next one replaces all of it."""
    return build_batch([Record(at, 1_000, b"%d" % at, bytes(500)) for at in range(10)])


def victims(cluster: TracedCluster) -> list[Victim]:
    data = str(cluster.data)
    return [*(broker_victim(data, broker, {}) for broker in range(2)), coordinator_victim(data)]


def saved(cluster: TracedCluster, victim: Victim) -> Survey:
    """After the end of the run, from where its ledgers are kept."""
    folder = Path(ledgers_directory(str(cluster.data)))
    parts = [memoryview(p.read_bytes()) for p in sorted(folder.glob(f"{victim.ledger}-*"))]
    assert parts
    for part in parts:
        check_header(part, victim.ledger)
    return survey(recorded([[part] for part in parts]), victim.tops)


def audited(cluster: TracedCluster, found: Survey, *, killed: bool = False) -> list[str]:
    assert cluster.replay is not None
    assert found.files
    return differences(cluster.replay, found, killed=killed)
