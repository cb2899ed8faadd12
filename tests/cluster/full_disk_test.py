"""The disk of one broker of several is full: what is acknowledged is safe, the others serve on, and
all is well when there is room again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic

from harness.clients.produce_raw import batch_of
from harness.disks.mounts import fill, need_mounts, own_mounts, small_disk
from harness.processes.cluster import Cluster, until
from harness.processes.stage import BROKERS, PATIENCE_S, Said, Stage, staged
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

A, B, C = range(3)
DISK_BYTES = 16 << 20
TEN = [b"%d" % number for number in range(10)]


@contextmanager
def staged_with_small_disk(folder: Path, broker: int) -> Iterator[tuple[Stage, Path]]:
    """The topic, and the folder that has a disk of its own."""
    need_mounts()
    with Cluster(
        folder, brokers=BROKERS
    ) as cluster:  # no start takes a folder that it did not make
        disk = cluster.data / f"broker-{broker}"
    with own_mounts():
        small_disk(disk, DISK_BYTES)
        with staged(folder, "min.insync.replicas=2", lag_ms=2_000) as stage:
            yield stage, disk


def serves_another(stage: Stage) -> Callable[[], None]:
    """A topic that B leads and A follows."""
    replicas = [[B, A, C]]
    config = {"min.insync.replicas": "2"}
    wanted = NewTopic("other", 1, replica_assignment=replicas, config=config)
    admin = stage.new_admin()
    admin.create_topics([wanted])["other"].result(PATIENCE_S)
    producer = confluent_kafka.Producer({**stage.client, "enable.idempotence": True})

    def sent() -> None:
        said = Said()
        producer.produce("other", bytes(10_000), partition=0, on_delivery=said)
        assert producer.flush(PATIENCE_S) == 0
        assert said.error is None

    return sent


def test_a_follower_without_room_holds_nobody_up_and_comes_back(tmp_path: Path) -> None:
    with staged_with_small_disk(tmp_path, C) as (stage, disk):
        stage.sent(*TEN)
        stage.until_log(C, "0-9:0")
        filler = fill(disk)
        large = bytes(100_000)
        assert stage.sent(large) == [10]
        assert set(stage.view().isr) == {A, B}
        stage.sent(*TEN)
        until(lambda: "No space left on device" in stage.cluster.logs(), "C says why")
        pid = stage.pid(C)
        filler.unlink()
        stage.until_isr(A, B, C)
        assert stage.until_equal() == stage.seen() == "0-20:0"
        assert stage.pid(C) == pid
        assert stage.read() == [*TEN, large, *TEN]


def test_a_leader_without_room_hands_over_and_loses_nothing(tmp_path: Path) -> None:
    """The producer goes on with the next leader; with room again the first one comes back."""
    with staged_with_small_disk(tmp_path, A) as (stage, disk):
        sent_to_other = serves_another(stage)
        sent_to_other()
        stage.sent(*TEN)
        pid = stage.pid(A)
        filler = fill(disk)
        refused = stage.code(A, batch_of(bytes(100_000)))
        assert refused == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        large = bytes(100_000)
        assert stage.sent(large) == [10]
        assert stage.until_led(B) == B
        assert stage.read() == [*TEN, large]
        sent_to_other()
        assert A not in stage.view().isr
        filler.unlink()
        sent_to_other()
        stage.until_isr(A, B, C)
        assert stage.until_equal() == stage.seen() == "0-9:0 10-10:1"
        assert (stage.pid(A), stage.view().leader_epoch) == (pid, 1)
