"""Logs that lost their first segments in a power loss, and followers that take their starts."""

from collections.abc import Callable

import pytest

from harness.simulation.cluster import A, B
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId
from tidelog.wire.checkpoints import RECOVERY_POINTS

End = Callable[[Scene, BrokerId], None]


def _kill(scene: Scene, broker: BrokerId) -> None:
    scene.cluster.kill(broker)


def _lose_power(scene: Scene, broker: BrokerId) -> None:
    scene.cluster.lose_power(broker)


def _start(scene: Scene, broker: BrokerId) -> int:
    return int(scene.cluster.replica(broker).log.start)


def _write(scene: Scene, leader: BrokerId, batches: int) -> None:
    for _ in range(batches):
        scene.clients.wrote(leader, 3, size=500)


def _a_leads_without_its_first_segment(*, min_isr: int) -> Scene:
    """A power loss of both took the first segment of A and the last ones of B. A leads, for its
    log is longer, and B has just taken the later start of A's log."""
    scene = Scene(A, B, min_isr=min_isr, segment_bytes="4096")
    _write(scene, A, 6)
    scene.sync(B)
    _write(scene, A, 6)
    scene.sync(A)
    directory = scene.cluster.disks[A].directory()
    log = directory.directory("t-0")
    first = min(name for name in log.names() if name.endswith(".log"))
    for broker in (B, A):
        scene.cluster.lose_power(broker)
    log.unlink(first)
    directory.unlink(RECOVERY_POINTS)
    for broker in (B, A):
        scene.start(broker)
    assert scene.the_leader() == A
    assert 0 < _start(scene, A) < 18
    scene.until_isr(A, B)
    assert _start(scene, B) == _start(scene, A)
    return scene


def _are_equal_once_a_has_followed(scene: Scene) -> None:
    """B, which alone is there, leads."""
    assert scene.the_leader() == B
    scene.start(A)
    scene.until_isr(A, B)
    scene.wrote(B)
    scene.settle()
    assert scene.log(A) == scene.log(B)
    scene.clients.check_all_is_there()


@pytest.mark.parametrize("end", [_kill, _lose_power])
def test_a_start_that_a_follower_took_from_its_leader_outlives_the_follower(end: End) -> None:
    scene = _a_leads_without_its_first_segment(min_isr=1)
    start = _start(scene, A)
    end(scene, B)
    scene.start(B)
    (log,) = scene.cluster.lives[B].logs
    assert log.start == start


def test_replicas_are_equal_after_whoever_took_a_later_start_leads_and_loses_power() -> None:
    """A once followed B, which began no earlier, and so forgot that its log lacks records. B must
    not begin earlier after that."""
    scene = _a_leads_without_its_first_segment(min_isr=1)
    scene.cluster.kill(A)
    assert scene.the_leader() == B
    scene.start(A)
    scene.until_isr(A, B)
    scene.cluster.kill(A)
    scene.until_isr(B)
    scene.cluster.lose_power(B)
    scene.start(B)
    _are_equal_once_a_has_followed(scene)


def test_replicas_are_equal_after_all_were_killed_right_after_one_took_a_later_start() -> None:
    """Both are trusted, so neither gives up its log for what the other has before it."""
    scene = _a_leads_without_its_first_segment(min_isr=2)
    for broker in (A, B):
        scene.cluster.kill(broker)
    scene.start(B)
    _are_equal_once_a_has_followed(scene)
