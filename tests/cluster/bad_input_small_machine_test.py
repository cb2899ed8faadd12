"""A full disk, too little shared memory: sentences, error codes, and all is well once it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.disks.mounts import fill, need_mounts, own_mounts, small_disk, small_shared_memory
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k19_create_topics as k19

pytestmark = pytest.mark.slow

DISK_BYTES = 16 << 20
SENTENCE_LINES = 1
MADE = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
"""The second where the answer to an earlier try came too late."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, with nothing else on it."""
    need_mounts()
    with own_mounts():
        small_disk(tmp_path / "disk", DISK_BYTES)
        yield tmp_path / "disk"


def create(raw: RawClient, name: str) -> ErrorCode:
    topic = k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=3_000)
    return ErrorCode(raw.ask(k19.API, 7, request).topics[0].error_code)


def first_refusal(raw: RawClient) -> ErrorCode:
    """The metadata log's last page has room for some."""
    for number in range(300):
        code = create(raw, f"early-{number}")
        if code is not ErrorCode.NONE:
            return code
    pytest.fail("the disk is not full")


def sentence(cluster: Cluster) -> str:
    finished = cluster.command("up", "--detach", "--base-port", "0")
    assert finished.code == 1, finished
    assert finished.out == ""
    assert len(finished.err.splitlines()) == SENTENCE_LINES, finished.err
    return finished.err


def test_a_full_disk_refuses_produces_and_nothing_else(disk: Path) -> None:
    with Cluster(disk) as cluster:
        topic, other = cluster.create_topic(), cluster.create_topic()
        pids = [cluster.broker_pid(0), cluster.process("supervisor")["pid"]]
        with RawClient(cluster.bootstrap) as raw:
            kept: list[bytes] = []
            while True:
                value = bytes([len(kept) % 251]) * 900_000
                row = produce(raw, topic, batch_of(value))
                if row.error_code:
                    break
                assert row.base_offset == len(kept)
                kept.append(value)
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert row.base_offset == -1
            filler = fill(disk)
            for name in (topic, other):  # one with files, one without
                code = produce(raw, name, batch_of(bytes(10_000))).error_code
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [row.value for row in fetch_all(raw, topic)] == kept
            # A round of checkpoints finds no room either.
            tried = cluster.data / "broker-0/log0/recovery-point-offset-checkpoint.pending.tmp"
            until(tried.exists, "a checkpoint was tried", 30)
            refused = first_refusal(raw)
            assert refused in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR}
            assert [row.value for row in fetch_all(raw, topic)] == kept
            filler.unlink()
            until(lambda: create(raw, "late") in MADE, "topics can be made again")
            small = bytes(1_000)
            for name, values in ((topic, kept), (other, [])):
                assert produce(raw, name, batch_of(small)).base_offset == len(values)
                values.append(small)
        assert pids == [cluster.broker_pid(0), cluster.process("supervisor")["pid"]]
        assert '"crashed"' not in cluster.logs()
        cluster.stop()
        cluster.start()
        with RawClient(cluster.bootstrap) as raw:
            assert [row.value for row in fetch_all(raw, topic)] == kept
            assert [row.value for row in fetch_all(raw, other)] == [small]


def test_a_cluster_stops_on_a_full_disk_and_starts_again_once_there_is_room(disk: Path) -> None:
    with Cluster(disk) as cluster:
        topic = cluster.create_topic()
        values = [bytes([number]) * 2_000 for number in range(20)]
        with RawClient(cluster.bootstrap) as raw:
            for value in values:
                assert produce(raw, topic, batch_of(value)).error_code == 0
        filler = fill(disk)
        cluster.stop()
        assert f"no space left on the disk of {cluster.data}" in sentence(cluster)
        filler.unlink()
        cluster.start()
        with RawClient(cluster.bootstrap) as raw:
            assert [row.value for row in fetch_all(raw, topic)] == values


def test_a_new_cluster_on_a_full_disk_is_one_sentence(disk: Path) -> None:
    cluster = Cluster(disk)
    fill(disk)
    assert "no space left on the disk of" in sentence(cluster)
    assert "--data" in sentence(cluster)


def test_too_little_shared_memory_is_one_sentence(tmp_path: Path) -> None:
    need_mounts()
    cluster = Cluster(tmp_path)
    with own_mounts():
        small_shared_memory(32 * 1024)
        said = sentence(cluster)
    assert "of shared memory in /dev/shm" in said
    assert "mount -o remount" in said
    cluster.assert_nothing_is_left()
