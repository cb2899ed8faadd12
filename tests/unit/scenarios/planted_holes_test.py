"""Every known hole is caught when it is put back: by a drawn history, or by its own scenario."""

from collections.abc import Callable

import pytest

from harness.faults.cluster_plants import PLANTS, plant_of
from harness.faults.planting import Planting
from harness.simulation.cluster import A, B, C, D
from harness.simulation.histories import History
from harness.simulation.moves import Move
from harness.simulation.power import PowerHistory
from harness.simulation.scenes import Scene, turn_a_byte
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.kernel.ids import Epoch, Incarnation, Offset, Partition
from tidelog.node.ipc.layout import Fences, board_size_bytes
from tidelog.node.ipc.standing import Standing
from tidelog.wire.replication import Ack, Attach, Batch, Bytes, Head, encode
from unit.scenarios import scenario_truncation_test as truncation


def _a_follower_of_an_old_epoch_vouches() -> None:
    scene = Scene(A, B, C, min_isr=1, partitions=2)
    cluster = scene.cluster
    scene.wrote(A)
    scene.settle()
    scene.apart(A, B)
    scene.clients.write(A)
    cluster.until(lambda: scene.end(C) == 2)
    cluster.supervisor_is_silent = True
    cluster.kill(A)
    cluster.network.cut(C, 3_000)
    cluster.elect(B, C, epoch=1)
    scene.clients.write(B)
    scene.settle()
    lives, topic = cluster.lives, cluster.image.names["t"].id
    stream = lives[B].machine._sending._streams[C].address.stream
    head = Head(C, lives[C].incarnation, lives[B].incarnation, stream)
    asked = Attach(99, topic, Partition(0), Epoch(0), Epoch(0), Offset(2), Offset(0))
    vouched = Ack(99, Offset(2), Offset(0))
    lives[B].received([bytes(part) for part in encode(head, [(asked, None), (vouched, None)])])
    scene.settle()


def _a_follower_between_the_high_watermark_and_the_epoch_start() -> None:
    scene = Scene(A, B, C, lag_ms=1_000)
    scene.wrote(A)
    scene.settle()
    scene.apart(A, C)
    scene.until_isr(A, B)
    scene.wrote(A, 4)
    scene.lost = lambda sender, to, one: (sender, to) == (B, C) and isinstance(one, Bytes | Batch)
    scene.cluster.kill(A)
    scene.cluster.run(3_000)


def _a_follower_below_the_log_start() -> None:
    scene = Scene(A, B, C, min_isr=1)
    scene.wrote(A, 10)
    scene.settle()
    scene.cluster.kill(B)
    scene.until_isr(A, C)
    for _ in range(5):
        scene.wrote(A, 10)
    scene.settle()
    scene.cluster.replica(A).log.advance_start(50)
    scene.lost = lambda _sender, to, one: to == B and isinstance(one, Bytes | Batch)
    scene.start(B)
    scene.cluster.run(2_000)


def _a_follower_that_is_fenced_and_does_not_see_it() -> None:
    scene = Scene(A, B, C)
    cluster = scene.cluster
    scene.wrote(A, 5)
    life = cluster.lives[B]
    blind = Fences(memoryview(bytearray(board_size_bytes(0))))
    life.standing = Standing(blind, B, life._on_lost)
    cluster.network.cut(B, 3_000)
    cluster.coordinator.tell(BrokerLost(B, Incarnation(life.incarnation)))
    scene.until_isr(A, C)
    scene.wrote(A)
    cluster.run(1_000)


def _a_follower_reborn_with_an_empty_disk() -> None:
    scene = Scene(A, B, C, min_isr=1)
    scene.wrote(A, 5)
    scene.settle()
    scene.cluster.wipe(B)
    scene.until_isr(A, C)
    scene.cluster.start(B)
    scene.lost = lambda sender, to, one: B in {sender, to} and isinstance(one, Ack | Bytes | Batch)
    scene.cluster.run(3_000)


def _an_eligible_one_with_a_damaged_log() -> None:
    scene = Scene(A, B, C)
    scene.wrote(A, 5)
    scene.settle()
    scene.sync(B)
    for one in (A, B, C):
        scene.cluster.kill(one)
        scene.cluster.run(10)
    turn_a_byte(scene.cluster.disks[B])
    scene.cluster.start(B)
    scene.cluster.run(3_000)
    assert scene.leader() is None


def _a_replica_that_goes_and_comes() -> None:
    Move().away_and_back()


def _a_replica_that_comes_late() -> None:
    move = Move()
    move.hold_back(D)
    move.cluster.reassign(B, C, D)
    move.cluster.run(2_000)
    assert move.holders() == {A, B, C, D}
    assert move.isr() == {A, B, C}


def _a_replica_that_comes_late_when_another_dies() -> None:
    move = Move()
    move.hold_back(D)
    move.cluster.reassign(B, D)
    move.cluster.kill(C)
    move.cluster.run(2_000)
    assert move.isr() == {A, B}


def _power_goes_while_no_disk_answers() -> None:
    scene = Scene(A, B, C, flush_policy="commit")
    scene.wrote(A, 5)
    cluster = scene.cluster
    for life in cluster.lives.values():
        life.storage.hold()
    scene.clients.write(A, 5)
    scene.settle()
    for one in (A, B, C):
        cluster.lose_power(one)
    lives = [cluster.start(one) for one in (A, B, C)]
    cluster.until(lambda: all(life.serving for life in lives))
    scene.until_isr(A, B, C)
    scene.settle()
    assert cluster.witness.truth(("t", Partition(0))).lost == []


SCENARIOS: dict[str, Callable[[], None]] = {
    "kip_279": truncation.test_fast_failover_divergence,
    "kip_320": _a_follower_of_an_old_epoch_vouches,
    "kafka_7128": _a_follower_between_the_high_watermark_and_the_epoch_start,
    "kafka_9491": _a_follower_below_the_log_start,
    "kip_841": _a_follower_that_is_fenced_and_does_not_see_it,
    "kip_903": _a_follower_reborn_with_an_empty_disk,
    "damaged": _an_eligible_one_with_a_damaged_log,
    "deleted_too_early": _a_replica_that_comes_late,
    "epoch_kept": _a_replica_that_goes_and_comes,
    "moved_too_early": _a_replica_that_comes_late_when_another_dies,
    "vouch_before_flush": _power_goes_while_no_disk_answers,
}
NEEDS_POWER_LOSS = {"fsync_wrong_file", "skip_dirsync", "skip_fsync"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_planted_hole_is_caught_by_its_scenario(name: str, planting: Planting) -> None:
    planting.is_noticed(plant_of(name), SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name in PLANTS if name not in SCENARIOS])
def test_a_planted_hole_is_caught_by_a_drawn_history(name: str, planting: Planting) -> None:
    kind = PowerHistory if name in NEEDS_POWER_LOSS else History
    planting.is_found(plant_of(name), lambda seed: kind(seed).run())
