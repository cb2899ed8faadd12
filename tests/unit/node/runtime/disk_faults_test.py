"""A disk that is made sick: what fails, what waits, what does not notice. Real files."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.disks.sick_disk import BROKER, EVERYTHING, SickDisk, sick_disk
from tidelog.kernel.failures import FailedSyncError
from tidelog.kernel.launch import faults_name
from tidelog.kernel.limits import DISK_FAULTS_MAX
from tidelog.node.ipc.board import memory_of_run
from tidelog.node.ipc.fault_layout import Ailment, FileGroup, Operation, Striker
from tidelog.node.ipc.fault_memory import FaultPage
from tidelog.node.log.shortages import is_full
from tidelog.node.runtime.cold_reads import ColdReads
from tidelog.node.runtime.disk import DirectoryLock, DiskDirectory, DiskFile, probe
from tidelog.node.runtime.disk_faults import open_faults
from tidelog.node.runtime.healthy import Healthy
from tidelog.tools.chaos.sick_disks import TooManyError, fault_of

LOG = "00000000000000000000.log"
CONTENT = b"there before"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SickDisk]:
    with sick_disk(tmp_path) as made:
        yield made


def partition(disk: SickDisk, name: str = "t-0", place: int = 0) -> DiskDirectory:
    made = disk.places[place].directory(name)
    made.make()
    return made


def log_in(directory: DiskDirectory) -> DiskFile:
    file = directory.open(LOG)
    file.append([CONTENT])
    return file


Act = Callable[[DiskDirectory, DiskFile], object]
ACTS: dict[str, tuple[Operation, Act]] = {
    "append": (Operation.WRITE, lambda _, file: file.append([b"more"])),
    "write at": (Operation.WRITE, lambda _, file: file.write_at(0, b"T")),
    "truncate": (Operation.NAME, lambda _, file: file.truncate(3)),
    "read": (Operation.READ, lambda _, file: file.read(0, 5)),
    "read into": (Operation.READ, lambda _, file: file.read_into(0, memoryview(bytearray(5)))),
    "sync": (Operation.SYNC, lambda _, file: file.sync()),
    "sync held": (Operation.SYNC, lambda _, file: _sync_held(file)),
    "sync by name": (Operation.SYNC, lambda place, _: place.syncable(LOG).sync()),
    "sync names": (Operation.SYNC, lambda place, _: place.sync()),
    "create": (Operation.CREATE, lambda place, _: place.open("new")),
    "make a directory": (Operation.CREATE, lambda place, _: place.directory("t-1").make()),
    "replace": (Operation.REPLACE, lambda place, _: place.replace(LOG, b"new", durable=False)),
    "replace durably": (Operation.SYNC, lambda place, _: place.replace("new", b"new")),
    "rename": (Operation.NAME, lambda place, _: place.rename(LOG, "new")),
    "unlink": (Operation.NAME, lambda place, _: place.unlink(LOG)),
    "move": (Operation.NAME, lambda place, _: place.move("t-9")),
    "remove": (Operation.NAME, lambda place, _: place.parent.remove_tree("t-0")),
    "read all": (Operation.READ, lambda place, _: place.read_all(LOG)),
    "read a part": (Operation.READ, lambda place, _: place.read_part(LOG, 0, 5)),
    "probe": (Operation.SYNC, lambda place, _: probe(place.parent.path, place.faults)),
}
"""Everything the seam does that touches the disk, and what it counts as."""


def _sync_held(file: DiskFile) -> None:
    held = file.held()
    assert held is not None
    try:
        held.sync()
    finally:
        held.let_go()


@pytest.mark.parametrize("act", ACTS)
def test_each_operation_fails_as_it_is_told_and_does_nothing_then(disk: SickDisk, act: str) -> None:
    operation, do = ACTS[act]
    lock = DirectoryLock(disk.places[0])
    place = partition(disk)
    file = log_in(place)
    disk.fails(operation)
    with pytest.raises(OSError, match="Input/output error") as failed:
        do(place, file)
    assert failed.value.errno == errno.EIO
    assert disk.struck() == [1]
    assert Path(disk.paths[0], "t-0", LOG).read_bytes() == CONTENT
    assert file.size == len(CONTENT)
    disk.heal()
    assert disk.found() == []
    do(place, file)
    lock.release()


@pytest.mark.parametrize("act", ["sync", "sync held", "sync by name", "sync names"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails_is_no_lack_of_room(disk: SickDisk, act: str, code: int) -> None:
    """Whatever the kernel calls it: what it was for was written once, and may be lost."""
    place = partition(disk)
    file = log_in(place)
    disk.fails(Operation.SYNC, error=code)
    with pytest.raises(FailedSyncError) as failed:
        ACTS[act][1](place, file)
    assert failed.value.errno == code
    assert not is_full(failed.value)
    assert is_full(OSError(errno.ENOSPC, "a write")) is True


@pytest.mark.parametrize("act", ACTS)
def test_an_operation_notices_no_fault_of_others(disk: SickDisk, act: str) -> None:
    operation, do = ACTS[act]
    lock = DirectoryLock(disk.places[0])
    place = partition(disk)
    file = log_in(place)
    others = EVERYTHING & ~operation
    if act in {"replace durably", "replace", "probe"}:  # which do several things
        others = Operation.READ
    disk.fails(others)
    disk.fails(directory=1)
    do(place, file)
    assert disk.struck() == [0, 0]
    lock.release()


def test_a_disk_is_well_until_it_is_made_sick_and_after_it_was_healed(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    assert faults_name(disk.run_id, BROKER) not in memory_of_run(disk.run_id)
    assert disk.faults.on[0] == 0
    disk.fails(Operation.READ)
    assert disk.faults.on[0] != 0
    disk.heal()
    assert disk.faults.on[0] == 0
    assert bytes(file.read(0, 5)) == CONTENT[:5]


def test_a_fault_is_of_what_was_named(disk: SickDisk) -> None:
    """A partition, a log directory, a group of files; all of them together."""
    sick, well = log_in(partition(disk)), log_in(partition(disk, "t-1"))
    index = partition(disk).open("00000000000000000000.index")
    far = log_in(partition(disk, "t-0", place=1))
    disk.fails(Operation.WRITE, partition="t-0", group=FileGroup.LOG, directory=0)
    for file in (well, index, far):
        file.append([b"goes on"])
    with pytest.raises(OSError, match="Input/output"):
        sick.append([b"fails"])
    assert disk.struck() == [1]


def test_a_checkpoint_is_beside_the_partitions_and_in_them(disk: SickDisk) -> None:
    disk.fails(Operation.REPLACE, group=FileGroup.CHECKPOINT)
    place = partition(disk)
    for where in (place, disk.places[0]):
        with pytest.raises(OSError, match="Input/output"):
            where.replace("a-checkpoint", b"0")
    place.replace("00000000000000000000.snapshot", b"0")


def test_once_is_once(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    disk.fails(Operation.READ, times_max=1)
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 5)
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    (one,) = disk.found()
    assert (one.struck, one.is_over) == (1, True)


def test_what_is_over_by_its_time_strikes_nobody(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    disk.fails(Operation.READ, until_ns=1)
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    assert [one.is_over for one in disk.found()] == [True]


def test_several_faults_are_on_together_and_a_new_one_follows_at_once(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    disk.fails(Operation.READ, partition="t-1")
    file.read(0, 5)
    disk.fails(Operation.SYNC)
    file.read(0, 5)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.fails(Operation.READ)
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 5)
    assert disk.struck() == [0, 1, 1]


def test_there_is_room_for_so_many_and_for_one_more_once_one_is_over(disk: SickDisk) -> None:
    for _ in range(DISK_FAULTS_MAX - 1):
        disk.fails(Operation.READ)
    disk.fails(Operation.READ, until_ns=1)
    disk.fails(Operation.SYNC)
    assert len(disk.found()) == DISK_FAULTS_MAX
    with pytest.raises(TooManyError):
        disk.fails(Operation.READ)
    disk.heal()
    disk.fails(Operation.READ)
    assert len(disk.found()) == 1


def test_a_full_disk_is_full_where_it_is_asked_and_has_no_room_left_to_tell_of(
    disk: SickDisk,
) -> None:
    """Reads go on, and so does what needs no room. A part of a disk is never a full disk."""
    file = log_in(partition(disk))
    near, far = disk.paths
    full = {"error": errno.ENOSPC}
    disk.put(fault_of(Ailment.FULL_DISK, Operation.WRITE, partition="t-0", **full))
    with pytest.raises(OSError, match="No space left"):
        file.append([b"more"])
    assert not disk.faults.is_full(near)
    disk.put(fault_of(Ailment.FULL_DISK, Operation.WRITE, directory=1, **full))
    assert (disk.faults.is_full(near), disk.faults.is_full(far)) == (False, True)
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    file.truncate(3)
    file.sync()
    disk.heal()
    assert not disk.faults.is_full(far)


def test_a_slow_disk_waits_and_then_does_it(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    disk.put(fault_of(Ailment.SLOW_DISK, Operation.READ, delay_ns=250_000_000))
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    assert disk.took_s() == 0.25
    disk.put(fault_of(Ailment.SLOW_DISK, Operation.READ, delay_ns=1_000_000_000_000))
    file.read(0, 5)
    assert disk.took_s() == 60.0, "the longer one counts, and there is an end to it"
    disk.heals_after_s = 0.1
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    assert disk.took_s() == 0.1, "nobody waits for a disk that is well again"


def test_a_slow_disk_lets_so_many_bytes_through(disk: SickDisk) -> None:
    """What comes while it is busy waits for what came before: nobody slept here."""
    file = log_in(partition(disk))
    disk.put(fault_of(Ailment.SLOW_DISK, Operation.WRITE, bytes_per_second=1_000))
    for waits in (0.5, 1.0, 1.5):
        file.append([bytes(500)])
        assert round(disk.took_s(), 1) == waits


def test_a_page_that_is_being_written_keeps_what_was_known(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    disk.fails(Operation.READ)
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 5)
    page = FaultPage.open(disk.run_id, BROKER)
    assert page is not None
    with page:
        disk.fails(Operation.SYNC)
        page._view[200] ^= 1
        with pytest.raises(OSError, match="Input/output"):
            file.read(0, 5)
        file.sync()
        page._view[200] ^= 1
        with pytest.raises(OSError, match="Input/output"):
            file.sync()


def test_a_file_without_a_name_and_one_that_moved_are_still_where_they_were(
    disk: SickDisk,
) -> None:
    place = partition(disk)
    file = log_in(place)
    held = file.held()
    assert held is not None
    Path(place.path, LOG).unlink()
    disk.fails(Operation.SYNC, partition="t-0", group=FileGroup.LOG)
    with pytest.raises(OSError, match="Input/output"):
        held.sync()
    held.let_go()


def test_a_worker_has_the_same_faults_and_counts_them_beside_the_broker(disk: SickDisk) -> None:
    file = log_in(partition(disk))
    worker = open_faults(disk.faults.helper(), Striker.CLEANER)
    disk.fails(Operation.READ)
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 5)
    folder = os.open(disk.paths[0], os.O_RDONLY)
    with pytest.raises(OSError, match="Input/output"):
        worker.strike(Operation.READ, f"/proc/self/fd/{folder}/t-0/{LOG}", 5)
    os.close(folder)
    assert disk.struck() == [2]
    worker.close()
    assert isinstance(open_faults([], Striker.CLEANER), Healthy)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


def checked(loop: asyncio.AbstractEventLoop, cold: ColdReads, fd: int) -> int | None:
    answer: asyncio.Future[int | None] = loop.create_future()
    cold.check(fd, 0, len(CONTENT), answer.set_result)
    return loop.run_until_complete(answer)


def test_what_would_be_sent_out_of_memory_meets_a_sick_disk_too(
    disk: SickDisk, loop: asyncio.AbstractEventLoop
) -> None:
    """Zero-copy reads touch no byte: they are told that the disk must be asked first."""
    file, other = log_in(partition(disk)), log_in(partition(disk, "t-1"))
    cold = ColdReads(loop, disk.faults)
    assert not cold.is_sick(file.fileno())
    disk.fails(Operation.READ, partition="t-0")
    assert cold.is_cached(file.fileno(), 0, 5, between=True)
    assert cold.is_sick(file.fileno())
    assert not cold.is_sick(other.fileno())
    assert disk.struck() == [0], "a question is no strike"
    assert checked(loop, cold, file.fileno()) == 0
    assert disk.struck() == [1]
    disk.heal()
    assert not cold.is_sick(file.fileno())


def test_the_plant_of_a_seam_that_forgets_to_ask_is_found(
    disk: SickDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the seam forgot, the tests above would see nothing fail."""
    monkeypatch.setattr(DiskFile, "_strike", partial(_forgets))
    file = log_in(partition(disk))
    disk.fails()
    assert bytes(file.read(0, 5)) == CONTENT[:5]
    assert disk.struck() == [0]


def _forgets(*_of: object) -> None: ...
