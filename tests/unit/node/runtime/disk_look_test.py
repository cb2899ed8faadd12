"""What `tidelog disk` finds out about files, against a real folder with a durability ledger."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import BOOT, OWNER, RecordedDisk
from harness.logs.batches import batch
from tidelog.kernel.ids import Partition
from tidelog.kernel.launch import ledgers_directory
from tidelog.node.ipc.ledger_memory import remove_ledger, save_ledgers
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.disk import DiskDirectory
from tidelog.node.runtime.lives import identity
from tidelog.tools import disk_look
from tidelog.tools.disk_look import Wanted, look
from tidelog.tools.disk_view import Replica
from tidelog.tools.log_files.data_folder import Folder
from tidelog.wire.checkpoints import RECOVERY_POINTS, encode_offsets

NAME = "00000000000000000000.log"
PLACE = "orders-0"


class Bench:
    """A broker's folder, and what is seen of its one partition."""

    def __init__(self, folder: Path, disk: RecordedDisk) -> None:
        self.data = folder
        self.disk = disk
        run = {"run_id": disk.run_id, "pid": 1, "cluster": "t", "runtime_dir": "", "bootstrap": ""}
        place = {"data_dir": str(folder), "folder": identity(folder)}
        (folder / "run.json").write_text(json.dumps({**run, **place}))

    def make(self) -> DiskDirectory:
        place = self.disk.directory.directory(PLACE)
        place.make()
        return place

    def seen(self) -> Replica:
        (broker,) = look(Folder(self.data, None, MetadataImage()), Wanted())
        assert broker.state == "stopped"
        (replica,) = broker.replicas
        return replica

    def stable(self) -> int | None:
        (segment,) = self.seen().segments
        return segment.stable


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "broker-0").mkdir()
    with RecordedDisk(tmp_path / "broker-0") as disk:
        yield Bench(tmp_path, disk)


def test_bytes_count_only_with_every_name_on_the_way_to_them(bench: Bench) -> None:
    place = bench.make()
    file = place.open(NAME)
    size = file.append((memoryview(batch(3)),))
    assert bench.stable() == 0
    place.syncable(NAME).sync()
    assert bench.stable() == 0, "the file's name may be lost"
    place.sync()
    assert bench.stable() == 0, "the directory's name may be lost"
    bench.disk.directory.sync()
    assert bench.stable() == size
    assert bench.seen().durable_offset == 3


def test_what_is_appended_after_a_sync_is_unflushed(bench: Bench) -> None:
    place = bench.make()
    file = place.open(NAME)
    size = file.append((memoryview(batch(3)),))
    for one in (place.syncable(NAME), place, bench.disk.directory):
        one.sync()
    file.append((memoryview(batch(2)),))
    seen = bench.seen()
    assert seen.segments[0].stable == size
    assert (seen.segments[0].unflushed or 0) > 0


def test_without_a_ledger_nobody_knows_what_is_stable(bench: Bench) -> None:
    bench.make().open(NAME).append((memoryview(batch(1)),))
    remove_ledger(bench.disk.run_id, OWNER)
    seen = bench.seen()
    assert (seen.segments[0].stable, seen.durable_offset) == (None, None)
    assert seen.segments[0].cached == seen.segments[0].size


def test_where_nobody_knows_the_recovery_point_is_the_least(bench: Bench) -> None:
    bench.make().open(NAME).append((memoryview(batch(5)),))
    remove_ledger(bench.disk.run_id, OWNER)
    points = encode_offsets({("orders", Partition(0)): 3})
    Path(bench.disk.top, RECOVERY_POINTS).write_bytes(points)
    seen = bench.seen()
    assert (seen.durable_offset, seen.is_exact) == (3, False)


@pytest.mark.parametrize("boot", [BOOT, "boot-2"])
def test_a_ledger_kept_between_runs_holds_until_the_machine_starts_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, boot: str
) -> None:
    size = bench.make().open(NAME).append((memoryview(batch(1)),))
    save_ledgers(bench.disk.run_id, str(bench.data))
    remove_ledger(bench.disk.run_id, OWNER)
    monkeypatch.setattr(disk_look, "boot_id", lambda: boot)
    assert bench.stable() == (0 if boot == BOOT else size)
    assert list(Path(ledgers_directory(str(bench.data))).iterdir()), "who looks takes nothing away"


def test_only_what_is_asked_for_is_looked_at(bench: Bench) -> None:
    bench.make().open(NAME)
    folder = Folder(bench.data, None, MetadataImage())
    assert [len(one.replicas) for one in look(folder, Wanted(topic="orders", partition=0))] == [1]
    assert [len(one.replicas) for one in look(folder, Wanted(topic="other"))] == [0]
    assert [len(one.replicas) for one in look(folder, Wanted(topic="orders", partition=1))] == [0]
    assert look(folder, Wanted(broker=5)) == []


def test_the_last_flush_of_a_partition_is_its_newest_segments(bench: Bench) -> None:
    place = bench.make()
    second = "00000000000000000005.log"
    for name in (NAME, second):
        place.open(name).append((memoryview(batch(3)),))
    assert bench.seen().last_flush is None
    place.syncable(NAME).sync()
    first = bench.seen()
    assert first.last_flush == first.segments[0].last_flush
    assert first.last_flush is not None
    assert first.last_flush.took_ms > 0
    assert first.segments[1].last_flush is None
    place.syncable(second).sync()
    both = bench.seen()
    assert both.last_flush == both.segments[1].last_flush
    assert both.segments[0].last_flush is not None
