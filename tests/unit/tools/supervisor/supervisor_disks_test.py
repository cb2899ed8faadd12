"""Disks of a cluster's own, as far as an ordinary user gets: what is refused, and why."""

from pathlib import Path

import pytest

from tidelog.kernel.failures import CannotStartError
from tidelog.tools.supervisor import disks
from tidelog.tools.supervisor.disks import Machine, lacking, refuse_elsewhere, settled
from tidelog.tools.supervisor.folder import Cluster, DataFolder, held_for_a_moment

NEW = Cluster("id")
WITH = Cluster("id", ports=[1], disk_bytes=64 << 20)
WITHOUT = Cluster("id", ports=[1])
DATA = "/data"


def machine(
    *,
    is_root: bool = True,
    may_mount: bool = True,
    missing: tuple[str, ...] = (),
    has_loop_devices: bool = True,
) -> Machine:
    return Machine(is_root, may_mount, missing, has_loop_devices)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (machine(is_root=False, may_mount=False, has_loop_devices=False), "here is no root;"),
        (machine(may_mount=False), "here is no right to mount (CAP_SYS_ADMIN);"),
        (machine(missing=("mkfs.ext4",)), "here is no mkfs.ext4;"),
        (machine(has_loop_devices=False), "here is no use of loop devices;"),
        (
            machine(is_root=False, missing=("mkfs.ext4", "losetup")),
            "here is no root and no mkfs.ext4 and no losetup;",
        ),
    ],
)
def test_where_they_cannot_be_made_it_is_said_what_is_missing(where: Machine, said: str) -> None:
    sentence = lacking(where)
    assert sentence is not None
    assert said in sentence
    assert sentence.endswith("chaos power-loss --tier 0 needs none of it")


def test_where_all_is_there_they_can_be_made() -> None:
    assert lacking(machine()) is None


def test_a_cluster_keeps_the_disks_it_began_with() -> None:
    assert settled("c", NEW, None) == settled("c", WITHOUT, None) == 0
    assert settled("c", NEW, 0) == disks.SIZE_DEFAULT
    assert settled("c", NEW, 32 << 20) == 32 << 20
    assert settled("c", WITH, None) == settled("c", WITH, 0) == WITH.disk_bytes
    assert settled("c", WITH, WITH.disk_bytes) == WITH.disk_bytes


def test_data_does_not_move_to_other_disks() -> None:
    with pytest.raises(CannotStartError, match=r"has its data on no disks of its own: start it w"):
        settled("c", WITHOUT, 0)
    with pytest.raises(CannotStartError, match=r"has disks of 64 MiB: leave :SIZE out"):
        settled("c", WITH, 32 << 20)


def test_logs_must_lie_on_the_brokers_disk() -> None:
    assert refuse_elsewhere(DATA, 1, {}) is None
    assert refuse_elsewhere(DATA, 1, {"log.dirs": "near,far"}) is None
    refusal = refuse_elsewhere(DATA, 1, {"log.dirs": "near,/data/logs"})
    assert refusal is not None
    assert refusal.startswith("broker 1 keeps logs in /data/logs/broker-1, which is not on its")


def test_a_folder_is_held_for_a_moment_only_where_nobody_has_it(tmp_path: Path) -> None:
    with held_for_a_moment(tmp_path) as free:
        assert not free, "there is no lock to hold"
    folder = DataFolder.claim(tmp_path, "c")
    folder.let_go()  # a process does not see its own lock
    with held_for_a_moment(tmp_path) as free:
        assert free


def test_where_nothing_is_mounted_nothing_is_done(tmp_path: Path) -> None:
    image = disks.disk_of(tmp_path, "broker-0").image
    image.parent.mkdir()
    image.touch()
    assert [disk.place.name for disk in disks.disks_in(tmp_path)] == ["broker-0"]
    disks.free(tmp_path)
    disks.free_unheld(tmp_path)
    disks.sweep(tmp_path)
    disks.discard(tmp_path, "broker-0")
    assert disks.disks_in(tmp_path) == []
    assert list(image.parent.iterdir()) == []
