"""Names in shared memory that another user of the machine has taken: nothing of them is used, and
nothing ends because of them."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import posix_ipc
import pytest

from harness.disks.mounts import mount_over, need_mounts, own_mounts
from harness.processes.other_user import OTHER_UID, as_other_user, needs_root
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.launch import (
    MEMORY_FOLDER,
    board_name,
    faults_name,
    ledger_name,
    ledgers_directory,
    ring_name,
)
from tidelog.node.ipc.board import Board, memory_of_run, remove_memory_of_run
from tidelog.node.ipc.fault_layout import PAGE_BYTES, Sheet
from tidelog.node.ipc.fault_memory import FaultPage
from tidelog.node.ipc.ledger_layout import FIRST_PART_BYTES
from tidelog.node.ipc.ledger_memory import (
    LedgerMemory,
    ledgers_left,
    read_ledger,
    remove_ledger,
    save_ledgers,
)
from tidelog.node.ipc.ring import RingWriter
from tidelog.node.ipc.ring_memory import SharedRings

pytestmark = needs_root

ME, PEER = BrokerId(0), BrokerId(1)
OWNER = "broker-0"
BOOT = "boot"


@pytest.fixture
def run() -> Iterator[str]:
    run_id = f"test{secrets.token_hex(4)}"
    yield run_id
    for entry in Path(MEMORY_FOLDER).glob(f"tidelog-{run_id}-*"):
        entry.unlink()


def taken(name: str, content: bytes = b"", uid: int = OTHER_UID) -> Path:
    """By a user who lets everybody read and write it."""
    path = Path(MEMORY_FOLDER + name)
    path.write_bytes(content)
    path.chmod(0o666)
    os.chown(path, uid, uid)
    return path


def rings(run: str, me: BrokerId, life: int = 2) -> SharedRings:
    return SharedRings(run, me, Incarnation(life), pytest.fail)


def made(owner: SharedRings, number: int) -> RingWriter:
    ring = owner.make(number)
    assert ring is not None
    return ring


def test_a_ring_whose_name_is_taken_is_made_and_found_under_another(run: str) -> None:
    foreign = taken(ring_name(run, ME, Incarnation(2), 7), bytes(1 << 20))
    owner, reader = rings(run, ME), rings(run, PEER)
    ring = made(owner, 7)
    opened = reader.open(ME, Incarnation(2), 7)
    assert opened is not None
    assert memory_of_run(run) == [ring_name(run, ME, Incarnation(2), 7)]
    reader.close(opened)
    owner.retire(ring)
    assert memory_of_run(run) == []
    assert foreign.stat().st_size == 1 << 20


def test_a_ring_of_another_user_is_never_mapped(run: str) -> None:
    taken(ring_name(run, ME, Incarnation(2), 7), bytes(1 << 20))
    assert rings(run, PEER).open(ME, Incarnation(2), 7) is None


def test_a_ring_whose_name_somebody_has_removed_is_retired(run: str) -> None:
    owner = rings(run, ME)
    ring = made(owner, 1)
    posix_ipc.unlink_shared_memory(ring_name(run, ME, Incarnation(2), 1))
    owner.retire(ring)
    owner.retire(made(owner, 2))
    assert memory_of_run(run) == []


def test_a_ring_that_is_empty_is_not_mapped(run: str) -> None:
    taken(ring_name(run, ME, Incarnation(2), 7), uid=os.geteuid())
    assert rings(run, PEER).open(ME, Incarnation(2), 7) is None


def test_rings_of_earlier_lives_that_cannot_be_removed_do_not_matter(run: str) -> None:
    taken(ring_name(run, ME, Incarnation(1), 1), uid=0)

    def make() -> list[str]:
        earlier = rings(run, ME, 1)
        made(earlier, 2)
        owner = rings(run, ME)
        made(owner, 1)
        names = memory_of_run(run)
        remove_memory_of_run(run)
        return names

    assert as_other_user(make) == repr([ring_name(run, ME, Incarnation(2), 1)])


def test_a_ledger_whose_names_are_taken_is_kept_under_others(run: str, tmp_path: Path) -> None:
    for number in range(3):
        taken(ledger_name(run, OWNER, number), bytes(FIRST_PART_BYTES))
    memory = LedgerMemory.open(run, OWNER, BOOT)
    assert memory is not None
    memory.parts[0][-4:] = b"mine"
    assert memory.grow(1) is not None
    memory.close()
    again = LedgerMemory.open(run, OWNER, BOOT)
    assert again is not None
    assert [bytes(part[-4:]) for part in again.parts] == [b"mine", bytes(4)]
    again.close()
    assert bytes(read_ledger(run, OWNER)[0][-4:]) == b"mine"
    save_ledgers(run, str(tmp_path))
    saved = [entry.name for entry in Path(ledgers_directory(str(tmp_path))).iterdir()]
    assert sorted(saved) == [f"{OWNER}-0", f"{OWNER}-1"]
    remove_ledger(run, OWNER)
    assert read_ledger(run, OWNER) == []


def test_a_helpers_ledger_under_another_name_is_found_by_its_owner(run: str) -> None:
    helper = f"{OWNER}-helper-1"
    taken(ledger_name(run, helper, 0))
    memory = LedgerMemory.open(run, helper, BOOT)
    assert memory is not None
    memory.close()
    ((name, parts),) = ledgers_left(run, OWNER)
    assert (name, len(parts)) == (helper, 1)


def test_a_page_of_faults_is_found_where_its_name_is_taken(run: str) -> None:
    taken(faults_name(run, 0), bytes(PAGE_BYTES))
    assert FaultPage.open(run, 0) is None
    with Board.create(board_name(run), slots=1) as board:
        page = FaultPage.make(run, 0)
        page.write(board, 0, Sheet(generation=5))
        with FaultPage.make(run, 0) as same:
            assert same.read().generation == 5
        page.close()


def test_removing_a_run_goes_on_past_what_it_may_not_remove(run: str) -> None:
    first = taken(f"/tidelog-{run}-a", uid=0)

    def remove() -> list[list[str]]:
        Board.create(board_name(run), slots=1).close()
        rings(run, ME).make(1)
        return [remove_memory_of_run(run), memory_of_run(run)]

    names = [board_name(run), ring_name(run, ME, Incarnation(2), 1)]
    assert as_other_user(remove) == repr([names, []])
    assert first.exists()


@pytest.mark.parametrize(
    "act",
    [
        lambda run: LedgerMemory.open(run, OWNER, BOOT),
        lambda run: FaultPage.make(run, 0).read(),
        lambda run: rings(run, ME).make(1),
    ],
    ids=["ledger", "faults", "ring"],
)
def test_a_name_that_may_not_be_opened_is_as_good_as_another(
    run: str, act: Callable[[str], object]
) -> None:
    for name in (ledger_name(run, OWNER, 0), faults_name(run, 0)):
        taken(name, uid=0).chmod(0o600)
    taken(ring_name(run, ME, Incarnation(2), 1), uid=0).chmod(0o600)

    def tried() -> list[object]:
        found = act(run)
        return [found is not None, len(remove_memory_of_run(run))]

    assert as_other_user(tried) == repr([True, 1])


def test_root_finds_the_memory_of_the_user_whose_cluster_it_looks_at(run: str) -> None:
    def make() -> str:
        Board.create(board_name(run), slots=1).close()
        return str(LedgerMemory.open(run, OWNER, BOOT) is not None)

    assert as_other_user(make) == repr("True")
    assert len(read_ledger(run, OWNER)) == 1
    Board.open(board_name(run)).close()
    assert memory_of_run(run) == [board_name(run), ledger_name(run, OWNER, 0)]


def test_a_name_at_which_something_is_mounted_stays_and_ends_nobody(tmp_path: Path) -> None:
    need_mounts()
    run_id = secrets.token_hex(4)
    place, source = Path(f"{MEMORY_FOLDER}{board_name(run_id)}"), tmp_path / "mounted"
    source.touch()
    place.touch()
    try:
        with own_mounts():
            mount_over(source, place)
            remove_memory_of_run(run_id)
            assert place.exists()
    finally:
        place.unlink()
