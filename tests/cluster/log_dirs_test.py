"""Several log directories of a broker, each on a disk of its own: one of them breaks under load."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.clients.java import Java
from harness.clients.raw_socket import RawClient
from harness.disks.mounts import need_disks, own_mounts
from harness.faults.chaos import Load, wrong_in_the_end
from harness.processes.cluster import Cluster, until
from harness.suite.need import required
from tidelog.tools.chaos.kernel_loss import shut_down
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.supervisor import disks
from tidelog.tools.supervisor.disks import Disk, make, mount
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k35_describe_log_dirs as k35

pytestmark = pytest.mark.slow

DISK_BYTES = 48 << 20
PARTITIONS = 4
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@contextmanager
def with_a_disk(folder: Path) -> Iterator[tuple[Cluster, Disk]]:
    """Two directories a broker; the first one of broker 0 is on a disk that can break."""
    need_disks()
    cluster = Cluster(folder, brokers=3, settings={"log.dirs": "near,far"})
    with cluster:  # no start takes a folder that it did not make
        disk = Disk(folder / "image", cluster.data / "broker-0/near")
    with own_mounts():
        with disks.held(disk) as lock:
            make(disk, DISK_BYTES, lock)
            mount(disk, lock)
        with Cluster(folder, brokers=3, settings=cluster.settings) as running:
            yield running, disk


def create(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas = [[n % 3, (n + 1) % 3, (n + 2) % 3] for n in range(PARTITIONS)]
    wanted = NewTopic(
        "t", PARTITIONS, replica_assignment=replicas, config={"min.insync.replicas": "2"}
    )
    admin.create_topics([wanted])["t"].result(30)


def in_sync(cluster: Cluster, broker: int) -> set[int]:
    """Partitions that count on this broker."""
    views = open_folder(cluster.data).image.names["t"].partitions
    return {number for number, view in enumerate(views) if broker in view.isr}


def all_in_sync(cluster: Cluster) -> bool:
    """Whether each broker has all that was acknowledged, of each partition."""
    return all(in_sync(cluster, broker) == set(range(PARTITIONS)) for broker in range(3))


def held(cluster: Cluster, broker: int) -> dict[str, tuple[int, set[int]]]:
    """Of each directory, by its name: its error, and the partitions told."""
    with RawClient(cluster.bootstrap.split(",")[broker]) as raw:
        answer = raw.ask(k35.API, 4, k35.DescribeLogDirsRequest(topics=None))
    return {
        Path(one.log_dir).name: (
            one.error_code,
            {row.partition_index for topic in one.topics for row in topic.partitions},
        )
        for one in answer.results
    }


def test_a_disk_that_breaks_takes_its_replicas_along_and_nothing_else(tmp_path: Path) -> None:
    with with_a_disk(tmp_path) as (cluster, disk):
        create(cluster)
        pid = cluster.broker_pid(0)
        near, far = {0, 2}, {1, 3}
        everything = set(range(PARTITIONS))
        with Load(cluster.bootstrap, "t", PARTITIONS, "load") as load:
            load.wait_for_more(200)
            until(lambda: in_sync(cluster, 0) == everything, "all are in sync")
            assert held(cluster, 0) == {"near": (0, near), "far": (0, far)}
            shut_down(disk.place)
            until(lambda: in_sync(cluster, 0) == far, "others lead what lay there")
            load.wait_for_more(500)
            assert in_sync(cluster, 0) == far
            assert held(cluster, 0) == {
                "near": (ErrorCode.KAFKA_STORAGE_ERROR, set()),
                "far": (0, far),
            }
            if shutil.which("java") or "java" in required():
                assert java_says(cluster) == {"near": True, "far": False}
            assert cluster.broker_pid(0) == pid
            why = cluster.done("why", "broker", "0", "--json").document
            assert why["reasons"][0]["code"] == "directory-failed"
            assert "replica 0: broker 0 cannot use" in cluster.done("why", "partition", "t:0").out
            cluster.done("broker", "stop", "0")
            with disks.held(disk) as lock:
                mount(disk, lock)  # as if it had been mended
            cluster.done("broker", "start", "0")
            until(lambda: in_sync(cluster, 0) == everything, "it came back and caught up")
            assert held(cluster, 0) == {"near": (0, near), "far": (0, far)}
            load.wait_for_more(200)
        assert "log_directory_failed" in cluster.logs()
        until(lambda: all_in_sync(cluster), "all are in sync")
        assert wrong_in_the_end(cluster, "t", PARTITIONS, [load]) == []
        image_of_all = open_folder(cluster.data).image.names["t"].partitions
        assert [view.lossy_elections for view in image_of_all] == [0] * PARTITIONS
        for what in ([], [str(disk.place.parent)], ["t:0"]):
            verified = cluster.done("log", "verify", *what, "--json").document
            assert verified["violations"] == []
            assert verified["checked"]["batches"] > 0
        sizes = cluster.done("log", "dump", str(disk.place.parent)).out
        assert [line for line in sizes.splitlines() if line in {"near", "far"}] == ["far", "near"]


def java_says(cluster: Cluster) -> dict[str, bool]:
    """Of broker 0's directories, by `kafka-log-dirs`: whether there is an error."""
    said = Java(cluster.bootstrap, alone=True).tool(LOG_DIRS, "--describe", "--broker-list", "0")
    (broker,) = json.loads(said.splitlines()[-1])["brokers"]
    return {Path(one["logDir"]).name: one["error"] is not None for one in broker["logDirs"]}


def test_a_directory_that_is_taken_away_is_filled_anew_from_the_leaders(tmp_path: Path) -> None:
    """Also one replaced by an empty disk: nobody takes its empty logs for full ones."""
    settings = {"log.dirs": "near,far"}
    with Cluster(tmp_path, brokers=3, settings=settings) as cluster:
        create(cluster)
        with Load(cluster.bootstrap, "t", PARTITIONS, "before") as before:
            before.wait_for_more(200)
        folder = cluster.data / "broker-0"
    shutil.rmtree(folder / "near")
    with Cluster(tmp_path, brokers=3, settings=settings) as cluster:
        with Load(cluster.bootstrap, "t", PARTITIONS, "after") as after:
            after.wait_for_more(200)
            until(lambda: all_in_sync(cluster), "all are in sync")
        assert wrong_in_the_end(cluster, "t", PARTITIONS, [before, after]) == []
        views = open_folder(cluster.data).image.names["t"].partitions
        assert [view.lossy_elections for view in views] == [0] * PARTITIONS
