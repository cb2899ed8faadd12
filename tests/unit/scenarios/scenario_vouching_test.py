"""Vouching under `flush.policy=commit`: nobody answers for what is not on stable storage."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from harness.simulation.storage import FLUSH_TAKES_MS
from tidelog.kernel.ids import NO_OFFSET, BrokerId

ALL = (A, B, C)


def _flushed(scene: Scene, broker: BrokerId) -> int:
    return scene.cluster.replica(broker).log.recovery_point


def _hold(scene: Scene, *brokers: BrokerId) -> None:
    for broker in brokers:
        scene.cluster.lives[broker].storage.hold()


def _let_go(scene: Scene, broker: BrokerId) -> None:
    scene.cluster.lives[broker].storage.let_go()
    scene.settle()


@pytest.fixture
def scene() -> Scene:
    made = Scene(*ALL, flush_policy="commit")
    made.settle()
    return made


def test_an_acknowledged_record_is_flushed_by_every_member(scene: Scene) -> None:
    for count in range(1, 20):
        scene.wrote(A)
        assert [_flushed(scene, one) for one in ALL] == [count] * 3


def test_a_record_waits_for_the_slowest_disk(scene: Scene) -> None:
    _hold(scene, C)
    write = scene.clients.write(A)
    scene.settle()
    assert (_flushed(scene, A), _flushed(scene, B), scene.end(C)) == (1, 1, 1)
    assert not write.is_over
    assert scene.high(A) == 0
    _let_go(scene, C)
    assert write.is_acked


@pytest.mark.parametrize("acks", [1, -1])
def test_the_leaders_own_disk_counts_too(scene: Scene, acks: int) -> None:
    _hold(scene, A)
    write = scene.clients.write(A, acks=acks)
    scene.settle()
    assert (_flushed(scene, B), _flushed(scene, C)) == (1, 1)
    assert not write.is_over
    _let_go(scene, A)
    assert write.is_acked


def test_acks_1_waits_for_no_follower(scene: Scene) -> None:
    _hold(scene, B, C)
    write = scene.clients.write(A, acks=1)
    scene.settle()
    assert write.is_acked
    assert scene.high(A) == 0


def test_what_comes_during_a_round_joins_the_next_one(scene: Scene) -> None:
    _hold(scene, A)
    first = scene.clients.write(A)
    scene.settle()
    others = [scene.clients.write(A) for _ in range(9)]
    scene.settle()
    disk = scene.cluster.disks[A]
    disk.calls.clear()
    _let_go(scene, A)
    assert all(one.is_acked for one in (first, *others))
    name = "00000000000000000000.log"
    assert disk.calls.count(("sync", name)) == 1, "one flush for all nine"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_lone_replica_answers_when_it_has_flushed(acks: int) -> None:
    scene = Scene(A, min_isr=1, flush_policy="commit")
    _hold(scene, A)
    write = scene.clients.write(A, acks=acks)
    scene.settle()
    assert not write.is_over
    _let_go(scene, A)
    assert write.is_acked
    assert scene.clients.fetch(A, 0).error_code == 0


def test_after_a_start_nothing_is_vouched_for_until_the_tail_is_flushed() -> None:
    scene = Scene(*ALL)
    scene.wrote(A, 5)
    scene.settle()
    scene.cluster.configure("t", "flush.policy", "commit")
    scene.settle()
    _hold(scene, B)
    scene.clients.write(A)
    scene.settle()
    scene.cluster.kill(B)
    scene.until_isr(A, C)
    life = scene.cluster.start(B)
    _hold(scene, B)
    scene.cluster.until(lambda: life.serving and scene.end(B) == 6)
    scene.cluster.run(2_000)
    replica = scene.cluster.replica(B)
    assert replica.by_flush
    assert replica.vouched == NO_OFFSET
    assert scene.isr() == {A, C}
    _let_go(scene, B)
    scene.until_isr(A, B, C)
    assert replica.vouched == 6


def test_a_new_leader_answers_for_nothing_before_one_flush_covered_its_tail() -> None:
    scene = Scene(*ALL, flush_policy="commit")
    scene.wrote(A, 3)
    _hold(scene, A, B, C)
    scene.clients.write(A, 2)
    scene.settle()
    scene.cluster.kill(A)
    scene.cluster.until(lambda: scene.leader() in {B, C} and scene.leader_knows())
    leader = scene.the_leader()
    other = next(one for one in (B, C) if one != leader)
    scene.settle()
    replica = scene.cluster.replica(leader)
    assert scene.end(leader) == 5
    assert (replica.vouched, scene.high(leader)) == (NO_OFFSET, 3)
    _let_go(scene, other)
    assert scene.high(leader) == 3
    _let_go(scene, leader)
    assert (replica.vouched, scene.high(leader)) == (5, 5)


def test_from_os_to_commit_the_tail_is_flushed_before_anything_is_vouched_for() -> None:
    scene = Scene(*ALL)
    scene.wrote(A, 7)
    scene.settle()
    assert [_flushed(scene, one) for one in ALL] == [0, 0, 0]
    _hold(scene, A)
    scene.cluster.configure("t", "flush.policy", "commit")
    assert scene.cluster.replica(A).vouched == NO_OFFSET
    write = scene.clients.write(A)
    scene.settle()
    assert (scene.high(A), write.is_over) == (7, False)
    _let_go(scene, A)
    assert write.is_acked
    assert [_flushed(scene, one) for one in ALL] == [8, 8, 8]


def test_from_commit_to_os_whoever_waits_for_a_flush_is_answered() -> None:
    scene = Scene(*ALL, flush_policy="commit")
    scene.settle()
    _hold(scene, *ALL)
    writes = [scene.clients.write(A, acks=acks) for acks in (1, -1)]
    scene.settle()
    assert not any(one.is_over for one in writes)
    scene.cluster.configure("t", "flush.policy", "os")
    scene.settle()
    assert all(one.is_acked for one in writes)
    scene.wrote(A)


def test_each_broker_vouches_by_its_own_policy() -> None:
    scene = Scene(*ALL)
    scene.cluster.kill(B)
    scene.until_isr(A, C)
    scene.cluster.start(B, **{"flush.policy": "commit"})
    scene.until_isr(A, B, C)
    scene.wrote(A)
    assert [_flushed(scene, one) for one in ALL] == [0, 1, 0]


def test_limits_flush_by_themselves_and_hold_nobody_up() -> None:
    scene = Scene(*ALL, flush_policy="messages+interval", flush_messages="3", flush_ms="200")
    scene.wrote(A, 2)
    assert _flushed(scene, A) == 0
    scene.cluster.run(200 + 2 * max(FLUSH_TAKES_MS))
    assert [_flushed(scene, one) for one in ALL] == [2] * 3, "by its age"
    _hold(scene, A)
    scene.wrote(A, 3)
    _let_go(scene, A)
    scene.cluster.run(2 * max(FLUSH_TAKES_MS))
    assert [_flushed(scene, one) for one in ALL] == [5] * 3, "by their number"
