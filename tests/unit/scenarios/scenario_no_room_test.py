"""Named scenarios of leaders whose disk is full while others' are not."""

import errno

from harness.simulation.clients import Write
from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.errors import ErrorCode

ALL = (A, B, C)
FULL = ErrorCode.KAFKA_STORAGE_ERROR


def fill(scene: Scene, *brokers: BrokerId) -> None:
    for broker in brokers:
        scene.cluster.disks[broker].failing["append"] = errno.ENOSPC


def heal(scene: Scene) -> None:
    for disk in scene.cluster.disks.values():
        disk.failing.clear()


def begun(*, lag_ms: int = 10_000, min_isr: int = 2) -> Scene:
    """One record everywhere."""
    scene = Scene(*ALL, lag_ms=lag_ms, min_isr=min_isr)
    scene.wrote(A)
    scene.settle()
    return scene


def written(scene: Scene, broker: BrokerId, acks: int = -1, *, timeout_ms: int = 60_000) -> Write:
    write = scene.clients.write(broker, 1, acks, timeout_ms=timeout_ms)
    scene.cluster.until(lambda: write.is_over)
    return write


def pressed(scene: Scene, milliseconds: int) -> list[int | None]:
    """Whoever leads is asked to write on, as producers do; what each was told."""
    ends = Instant(scene.cluster.now + ms(milliseconds))
    codes = []
    while scene.cluster.now < ends:
        codes.append(written(scene, scene.the_leader(), timeout_ms=100).code)
        scene.cluster.run(20)
    return codes


def is_well(scene: Scene, epoch: int) -> None:
    """All in sync and equal, after so many elections."""
    heal(scene)
    scene.until_isr(*ALL)
    scene.wrote(scene.the_leader())
    scene.settle()
    assert len({scene.log(one) for one in ALL}) == 1
    assert scene.cluster.view().leader_epoch == epoch
    assert scene.cluster.view().lossy_elections == 0
    assert not any(kind in {"truncated", "started_anew"} for _, kind, _, _ in scene.cluster.notes)
    scene.clients.check_all_is_there()


def test_a_leader_without_room_hands_over_at_once_and_comes_back() -> None:
    scene = begun()
    fill(scene, A)
    began = scene.cluster.now
    assert written(scene, A).code == FULL
    scene.cluster.until(lambda: scene.cluster.leads(B))
    assert scene.cluster.now - began < ms(50)
    assert scene.isr() == {B, C}
    assert written(scene, B).is_acked
    assert scene.cluster.now - began < ms(100), "it waits for who cannot write"
    (note,) = [one for one in scene.cluster.notes if one[1] == "no_room"]
    assert note[0] == A
    assert note[3] == {"leader_epoch": 0, "end": 1, "others": [B, C]}
    scene.cluster.run(20_000)
    assert (scene.isr(), scene.end(A), scene.end(B)) == ({B, C}, 1, 2)
    heal(scene)
    scene.cluster.until(lambda: scene.isr() == set(ALL), within_ms=4_000)
    is_well(scene, 1)


def test_where_nobody_has_room_each_gives_up_once_and_the_last_leads_on() -> None:
    """However long, and however often it is asked: reads go on, records are refused."""
    scene = begun()
    fill(scene, *ALL)
    codes = pressed(scene, 120_000)
    assert set(codes) <= {FULL, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (scene.leader(), scene.cluster.view().leader_epoch) == (C, 2)
    assert scene.isr() == set(ALL), "they have all there is"
    assert scene.clients.fetch(C, 0).error_code == 0
    is_well(scene, 2)


def test_it_hands_over_to_who_has_room_not_to_who_comes_first() -> None:
    """Also where that one has tried nothing since: it did so while it followed."""
    scene = begun(lag_ms=60_000)
    fill(scene, B)
    assert written(scene, A).is_acked
    fill(scene, A)
    assert written(scene, A).code == FULL
    scene.cluster.until(lambda: scene.leader() == C)
    assert scene.cluster.view().leader_epoch == 1
    assert scene.cluster.view().elr == (A,)
    heal(scene)
    is_well(scene, 1)


def test_it_leads_on_where_nobody_else_is_in_sync() -> None:
    scene = begun(min_isr=1)
    scene.cluster.kill(B)
    scene.cluster.kill(C)
    scene.until_isr(A)
    fill(scene, A)
    assert set(pressed(scene, 3_000)) == {FULL}
    assert scene.leader() == A
    scene.start(B)
    scene.cluster.until(lambda: scene.leader() == B)
    scene.start(C)
    is_well(scene, 1)


def test_it_asks_until_a_coordinator_hears_it() -> None:
    scene = begun()
    scene.cluster.kill_coordinator()
    fill(scene, A)
    assert written(scene, A).code == FULL
    scene.cluster.run(3_000)
    scene.cluster.start_coordinator()
    scene.cluster.until(lambda: scene.leader() == B, within_ms=3_000)
    is_well(scene, 1)


def test_what_it_alone_holds_is_not_given_up() -> None:
    """Of records that only the leader acknowledged the others know later: it waits for that."""
    scene = begun()
    for one in (B, C):
        scene.apart(A, one)
    assert written(scene, A, acks=1).is_acked
    fill(scene, A)
    assert written(scene, A).code == FULL
    scene.cluster.run(2_000)
    assert scene.leader() == A
    for one in (B, C):
        scene.together(A, one)
    scene.cluster.until(lambda: scene.leader() == B)
    assert scene.end(B) == 2
    is_well(scene, 1)


def test_a_follower_without_room_is_waited_for_a_moment_only() -> None:
    scene = begun(lag_ms=30_000)
    fill(scene, C)
    began = scene.cluster.now
    assert written(scene, A).is_acked
    assert scene.cluster.now - began < ms(1_000)
    assert (scene.leader(), scene.isr()) == (A, {A, B})
    is_well(scene, 0)


def test_who_is_full_still_and_has_missed_nothing_comes_back_and_holds_nobody_up() -> None:
    """Nobody can tell but by the next record: that one waits a moment."""
    scene = begun(lag_ms=30_000)
    fill(scene, A)
    assert written(scene, A).code == FULL
    scene.cluster.until(lambda: scene.leader() == B)
    scene.cluster.run(1_500)
    assert scene.isr() == {B, C}
    scene.cluster.until(lambda: scene.isr() == set(ALL), within_ms=3_000)
    began = scene.cluster.now
    assert written(scene, B).is_acked
    assert scene.cluster.now - began < ms(1_000)
    assert (scene.leader(), scene.isr()) == (B, {B, C})
    is_well(scene, 1)


def test_a_disk_that_takes_a_little_now_and_then_moves_leaders_seldom() -> None:
    """All are nearly full: small batches find a place, large ones do not. What each shows of its
    disk changes all the time."""
    scene = begun()
    for _ in range(60):
        fill(scene, *ALL)
        pressed(scene, 900)
        heal(scene)
        pressed(scene, 100)
    assert scene.cluster.view().leader_epoch <= 3 * 4
    scene.cluster.run(5_000)
    is_well(scene, scene.cluster.view().leader_epoch)


def test_who_must_start_anew_and_has_no_room_for_it_tries_again() -> None:
    """Until then it keeps what it has, and nobody is told otherwise."""
    scene = begun(min_isr=1)
    scene.cluster.kill(B)
    scene.until_isr(A, C)
    scene.wrote(A, 5)
    scene.settle()
    scene.cluster.replica(A).log.advance_start(4)
    scene.cluster.disks[B].failing["create"] = errno.ENOSPC
    scene.start(B)
    scene.cluster.run(3_000)
    assert (scene.isr(), scene.log(B), scene.high(B)) == ({A, C}, "0-0:0", 0)
    assert not any(kind == "started_anew" for _, kind, _, _ in scene.cluster.notes)
    assert len([one for one in scene.cluster.lives[B].troubles if "sick" in one[1]]) > 1
    heal(scene)
    scene.until_isr(*ALL)
    scene.settle()
    replica = scene.cluster.replica(B)
    assert (replica.log.start, replica.log.end, scene.high(B)) == (4, 6, 6)
    assert (B, "started_anew") in [(who, kind) for who, kind, _, _ in scene.cluster.notes]
