"""A name is used again: nothing of the topic that had it before is taken for the new one's."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.wire.checkpoints import PARTITION_METADATA

ALL = (A, B, C)


@pytest.mark.parametrize("rest", [b"", None])
def test_a_replica_that_forgot_whose_it_is_begins_anew(rest: bytes | None) -> None:
    """A power loss took the file that names the topic, and left records: while the broker was away
    the name was used again, in an epoch of the same number."""
    scene = Scene(*ALL, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.lives[B].flush()
    cluster.lose_power(B)
    directory = cluster.disks[B].directory().directory("t-0")
    if rest is None:
        directory.unlink(PARTITION_METADATA)
    else:
        directory.replace(PARTITION_METADATA, rest)
    scene.until_isr(A, C)
    cluster.delete("t")
    cluster.witness.truths.clear()
    cluster.create("t", A, B, C)
    scene.wrote(A, 2)
    scene.clients.writes = scene.clients.writes[1:]
    scene.start(B)
    scene.until_isr(*ALL)
    scene.settle()
    assert len({scene.content(one) for one in ALL}) == 1
    scene.clients.check_all_is_there()


def test_a_replica_that_forgot_whose_it_is_keeps_what_the_cluster_counts_on() -> None:
    """All lost power and the file that names the topic: they are all there is."""
    scene = Scene(*ALL, min_isr=3)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    for one in ALL:
        cluster.lives[one].flush()
    for one in ALL:
        cluster.lose_power(one)
        cluster.disks[one].directory().directory("t-0").unlink(PARTITION_METADATA)
    for one in ALL:
        scene.start(one)
    scene.until_isr(*ALL)
    scene.settle()
    assert scene.log(A) == scene.log(B) == scene.log(C) == "0-4:0"
    scene.clients.check_all_is_there()
