"""Named scenarios on several log directories: one fails, is gone, or comes back."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import NO_LEADER
from tidelog.wire.errors import ErrorCode

ALL = (A, B, C)
BROKEN, WHOLE = 0, 1
"""Partitions: each broker has the first in one directory and the second in the other."""


def _scene(*replicas: int, min_isr: int = 2) -> Scene:
    scene = Scene(*ALL[: len(replicas)], min_isr=min_isr, partitions=2, directories=2)
    for partition in (BROKEN, WHOLE):
        _wrote(scene, partition)
    scene.settle()
    return scene


def _wrote(scene: Scene, partition: int) -> None:
    cluster = scene.cluster
    cluster.until(lambda: cluster.leads(cluster.view("t", partition).leader, "t", partition))
    leader = cluster.view("t", partition).leader
    write = scene.clients.write(leader, partition=partition)
    cluster.until(lambda: write.is_over)
    assert write.is_acked, write


def _until_whole(scene: Scene) -> None:
    """Everybody in sync everywhere, and nothing was lost on the way."""
    cluster = scene.cluster
    cluster.until(lambda: all(scene.isr(one) == set(ALL) for one in (BROKEN, WHOLE)))
    for partition in (BROKEN, WHOLE):
        _wrote(scene, partition)
        assert cluster.view("t", partition).lossy_elections == 0
    scene.settle()
    scene.clients.check_all_is_there()


def test_what_lies_on_a_broken_disk_is_led_by_others_and_the_rest_as_before() -> None:
    scene = _scene(*ALL)
    cluster = scene.cluster
    epoch = cluster.view("t", WHOLE).leader_epoch
    cluster.disks[A].broken.add("log0")
    refused = scene.clients.write(A, partition=BROKEN)
    cluster.until(lambda: refused.is_over)
    assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.until(lambda: cluster.view("t", BROKEN).leader == B)
    assert scene.isr(BROKEN) == {B, C}
    _wrote(scene, BROKEN)
    _wrote(scene, WHOLE)
    cluster.run(10_000)
    assert scene.isr(BROKEN) == {B, C}
    assert (scene.isr(WHOLE), cluster.view("t", WHOLE).leader_epoch) == (set(ALL), epoch)
    assert scene.clients.fetch(A, 0, partition=BROKEN).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.kill(A)
    cluster.disks[A].broken.clear()
    cluster.start(A)
    _until_whole(scene)


@pytest.mark.parametrize("is_clean", [False, True])
def test_who_finds_a_directory_broken_at_its_start_serves_from_the_others(
    *, is_clean: bool
) -> None:
    scene = _scene(*ALL)
    cluster = scene.cluster
    if is_clean:
        cluster.stop(A)
    else:
        cluster.kill(A)
    cluster.disks[A].broken.add("log0")
    scene.start(A)
    cluster.until(lambda: A in scene.isr(WHOLE))
    cluster.run(10_000)
    assert scene.isr(BROKEN) == {B, C}
    _wrote(scene, BROKEN)
    cluster.kill(A)
    cluster.disks[A].broken.clear()
    cluster.start(A)
    _until_whole(scene)


def test_an_empty_directory_in_place_of_a_full_one_leads_nothing() -> None:
    """Only A has everything. Nobody leads until its disk is put back."""
    scene = _scene(*ALL, min_isr=1)
    cluster = scene.cluster
    for broker in (C, B):
        cluster.kill(broker)
        cluster.run(100)
    assert scene.isr(BROKEN) == {A}
    _wrote(scene, BROKEN)
    cluster.kill(A)
    cluster.until(lambda: cluster.view("t", BROKEN).leader == NO_LEADER)
    kept = cluster.disks[A].root.names.pop("log0")
    for broker in ALL:
        scene.start(broker)
    cluster.run(10_000)
    assert cluster.view("t", BROKEN).leader == NO_LEADER
    assert cluster.view("t", WHOLE).leader == A
    assert scene.clients.fetch(A, 0, partition=BROKEN).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.kill(A)
    cluster.disks[A].root.names["log0"] = kept
    cluster.start(A)
    cluster.until(lambda: cluster.view("t", BROKEN).leader == A)


def test_what_lay_in_a_directory_that_is_taken_away_is_made_anew_in_another() -> None:
    scene = _scene(*ALL)
    cluster = scene.cluster
    for broker in (C, B, A):  # A is the last of those that have everything
        cluster.kill(broker)
    cluster.directories = 1
    cluster.disks[A].root.names["log0"], _ = (
        cluster.disks[A].root.names.pop("log1"),
        cluster.disks[A].root.names.pop("log0"),
    )
    scene.start(A)
    cluster.directories = 2
    for broker in (B, C):
        scene.start(broker)
    _until_whole(scene)
    assert cluster.replica(A, "t", BROKEN).log.directory.path == "log0/t-0"


def test_a_lone_replica_begins_empty_where_its_directory_was_taken_away() -> None:
    scene = _scene(A, min_isr=1)
    cluster = scene.cluster
    cluster.kill(A)
    del cluster.disks[A].root.names["log0"]
    scene.start(A)
    cluster.until(lambda: all(cluster.leads(A, "t", one) for one in (BROKEN, WHOLE)))
    assert [scene.end(A, one) for one in (BROKEN, WHOLE)] == [0, 1]
    views = [cluster.view("t", one) for one in (BROKEN, WHOLE)]
    assert [view.lossy_elections for view in views] == [1, 0], "it is not done in secret"
    _wrote(scene, BROKEN)
