"""Power losses under flush policies: named scenario 5.20, and who keeps its place."""

from random import Random

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Partition

ALL = (A, B, C)
KEY = ("t", Partition(0))
KNOWN_MS = 2_500
"""By then it is on disk whose log holds all that it vouched for."""


def _under(policy: str, *, messages: str = "", interval_ms: str = "") -> Scene:
    given = {"flush_messages": messages, "flush_ms": interval_ms}
    limits = {name: value for name, value in given.items() if value}
    scene = Scene(*ALL, flush_policy=policy, **limits)  # type: ignore[arg-type] # topic's settings
    scene.cluster.run(KNOWN_MS)
    return scene


def _dark(scene: Scene, *brokers: BrokerId, seed: int = 1) -> None:
    for one in brokers:
        scene.cluster.lose_power(one, Random(seed + one))


def _again(scene: Scene, *brokers: BrokerId) -> None:
    lives = [scene.cluster.start(one) for one in brokers]
    scene.cluster.until(lambda: all(life.serving for life in lives))
    scene.the_leader()
    scene.until_isr(*ALL)
    scene.settle()


@pytest.mark.parametrize("seed", range(8))
def test_all_replica_power_loss_under_commit_loses_nothing_acknowledged(seed: int) -> None:
    scene = _under("commit")
    rng = Random(seed)
    acked = 0
    for _ in range(rng.randint(1, 30)):
        acked = max(acked, scene.wrote(A, rng.randint(1, 3)).offset)
    for _ in range(5):
        scene.clients.write(A, 2)
    scene.cluster.run(rng.uniform(0, 3))
    _dark(scene, *ALL, seed=seed)
    _again(scene, *rng.sample(ALL, 3))
    assert scene.cluster.view().lossy_elections == 0, "all three kept their places"
    assert scene.cluster.witness.truth(KEY).lost == []
    assert scene.log(A) == scene.log(B) == scene.log(C)
    assert scene.end(A) > acked
    scene.clients.check_all_is_there()


@pytest.mark.parametrize("first", [B, C])
def test_under_commit_one_of_the_last_in_sync_leads_as_soon_as_it_is_back(first: BrokerId) -> None:
    """It has all that was acknowledged, and the cluster knows that it has."""
    scene = _under("commit")
    scene.wrote(A, 5)
    _dark(scene, *ALL)
    scene.cluster.run(20)
    scene.start(first)
    assert scene.the_leader() == first
    assert scene.end(first) == 5


def test_a_member_under_commit_stays_eligible_over_its_power_loss() -> None:
    scene = _under("commit")
    scene.wrote(A, 5)
    scene.cluster.kill(A)
    scene.until_isr(B, C)
    leader = scene.the_leader()
    other = next(one for one in (B, C) if one != leader)
    _dark(scene, other)
    scene.until_isr(leader)
    assert set(scene.cluster.view().elr) == {other}
    scene.start(other)
    assert other in {*scene.cluster.view().elr, *scene.isr()}
    scene.until_isr(B, C)


def test_who_came_under_commit_too_late_to_be_known_is_trusted_with_less() -> None:
    scene = Scene(*ALL, flush_policy="commit")
    scene.wrote(A, 5)
    _dark(scene, *ALL)
    scene.start(A)
    scene.cluster.run(2_000)
    assert scene.leader() is None, "it waits for the others"
    _again(scene, B, C)
    assert scene.end(A) == 5
    scene.clients.check_all_is_there()


def test_from_commit_to_os_a_place_is_given_up_before_the_first_record_is_unflushed() -> None:
    scene = _under("commit")
    scene.wrote(A, 5)
    scene.cluster.configure("t", "flush.policy", "os")
    for _ in range(200):
        scene.clients.write(A)
        scene.cluster.run(20)
        for one in ALL:
            replica = scene.cluster.replica(one)
            kept = KEY in scene.cluster.lives[one].logs.working[0].kept.rows
            assert not kept or replica.vouched <= replica.log.recovery_point
    assert not any(scene.cluster.replica(one).by_flush for one in ALL)
    _dark(scene, *ALL)
    scene.start(A)
    scene.cluster.run(2_000)
    assert scene.leader() is None, "nobody is trusted with what was acknowledged unflushed"


def test_all_replica_power_loss_under_messages_loses_few_and_says_how_many() -> None:
    scene = _under("messages", messages="20")
    for _ in range(100):
        scene.wrote(A)
    scene.cluster.run(100)
    for _ in range(15):
        scene.wrote(A)
    for one in ALL:
        scene.checkpoint(one)
        scene.cluster.lives[one].storage.sync()
    _dark(scene, *ALL)
    _again(scene, *ALL)
    assert 100 <= scene.end(A) <= 115
    view = scene.cluster.view()
    assert view.lossy_elections == 1
    assert view.lost_records == 115 - scene.end(A)
    (said,) = scene.cluster.coordinator.lossy
    assert (said.lost.start, said.lost.records) == (scene.end(A), view.lost_records)
    assert said.lost.bound.startswith("what came after the last flush: 20 records, and what came")
    assert scene.log(A) == scene.log(B) == scene.log(C)


def test_all_replica_power_loss_under_interval_loses_what_is_younger() -> None:
    scene = _under("interval", interval_ms="100")
    for _ in range(200):
        scene.wrote(A)
        scene.cluster.run(5)
    old = scene.end(A)
    scene.cluster.run(200)
    for _ in range(10):
        scene.wrote(A)
    _dark(scene, *ALL)
    _again(scene, *ALL)
    assert old <= scene.end(A) <= old + 10
    assert scene.log(A) == scene.log(B) == scene.log(C)


@pytest.mark.parametrize("policy", ["commit", "interval", "messages"])
def test_what_a_killed_broker_had_not_flushed_is_flushed_though_nobody_leads(policy: str) -> None:
    """A, killed first, is the only one that is back; it may not lead, and follows nobody."""
    scene = _under(policy, messages="20", interval_ms="100")
    scene.wrote(A, 2)
    for one in ALL:
        scene.cluster.lives[one].storage.hold()
    scene.clients.write(A, 3)
    scene.cluster.run(10)
    for one in ALL:
        scene.cluster.kill(one)
        scene.cluster.run(10)
    scene.start(A)
    scene.cluster.run(300)
    assert scene.leader() is None
    log = scene.cluster.replica(A).log
    assert (log.end, log.recovery_point) == (5, 5)
    _dark(scene, A)
    scene.start(A)
    assert scene.end(A) == 5


@pytest.mark.parametrize("policy", ["interval", "bytes", "commit"])
def test_what_a_killed_broker_had_not_flushed_is_flushed_before_it_hears_of_its_topics(
    policy: str,
) -> None:
    """By the brokers' own policy: a topic's comes with the metadata."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    cluster.kill(A)
    cluster.network.cut(A, COORDINATOR_ID)
    limits = {"log.flush.interval.ms": "100", "flush.bytes": "1000"}
    life = cluster.start(A, **limits, **{"flush.policy": policy})
    cluster.run(300)
    assert not list(life.replicas)
    assert [(log.end, log.recovery_point) for log in life.logs] == [(5, 5)]


def test_a_tail_of_before_commit_is_not_said_to_be_kept_before_a_flush_covered_it() -> None:
    """A comes back under `commit` with records from the time of `os`, and its disk is slow. It may
    not lead, and follows nobody: nothing but its policy asks for a flush."""
    scene = _under("os")
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(A)
    cluster.configure("t", "flush.policy", "commit")
    for one in (B, C):
        cluster.kill(one)
        cluster.run(10)
    life = cluster.start(A)
    life.storage.hold()
    cluster.run(KNOWN_MS)
    assert scene.leader() is None
    assert not life.logs.kept()
    life.storage.let_go()
    cluster.run(KNOWN_MS)
    assert life.logs.kept()


@pytest.mark.parametrize("policy", ["os", "commit", "interval"])
def test_a_kill_of_all_loses_nothing_under_any_policy(policy: str) -> None:
    scene = _under(policy, interval_ms="1000")
    for _ in range(20):
        scene.wrote(A, 2)
    for one in ALL:
        scene.cluster.kill(one)
    _again(scene, *ALL)
    assert scene.cluster.view().lossy_elections == 0
    assert scene.end(A) >= 40
    scene.clients.check_all_is_there()


@pytest.mark.parametrize("policy", ["os", "commit", "bytes"])
def test_power_loss_of_fewer_than_must_be_in_sync_loses_nothing(policy: str) -> None:
    scene = _under(policy)
    for _ in range(20):
        scene.wrote(A, 2)
    _dark(scene, A)
    scene.cluster.until(lambda: scene.leader() in {B, C})
    _again(scene, A)
    assert scene.cluster.view().lossy_elections == 0
    assert scene.end(A) == 40
    scene.clients.check_all_is_there()
