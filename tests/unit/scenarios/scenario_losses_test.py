"""Named scenarios 5.2 (eligible leaders), 5.8, 5.9 and 5.10: what may be lost, and who is told."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.wire.checkpoints import RECOVERY_POINTS
from tidelog.wire.errors import ErrorCode
from tidelog.wire.replication import EpochEnd

KEY = ("t", Partition(0))


def _a_alone_has_the_rest(*, unclean: bool = False) -> Scene:
    """A, alone in sync, acknowledged 0-99; B, out of sync, has 0-59. A is dead."""
    allowed = "true" if unclean else "false"
    scene = Scene(A, B, min_isr=1, lag_ms=1_000, unclean_leader_election_enable=allowed)
    scene.wrote(A, 60)
    scene.settle()
    scene.apart(A, B)
    scene.until_isr(A)
    for _ in range(4):
        scene.wrote(A, 10)
    assert (scene.high(A), scene.end(B)) == (100, 60)
    scene.checkpoint(A)
    scene.cluster.kill(A)
    return scene


def test_unclean_off() -> None:
    """5.8: the partition waits for the one that has everything."""
    scene = _a_alone_has_the_rest()
    cluster = scene.cluster
    cluster.run(60_000)
    assert scene.leader() is None
    assert scene.clients.metadata_code(B) == ErrorCode.LEADER_NOT_AVAILABLE
    for offset in (59, 80):
        assert scene.clients.fetch(B, offset).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    scene.together(A, B)
    cluster.start(A)
    assert scene.the_leader() == A
    scene.until_isr(A, B)
    scene.settle()
    assert cluster.view().lossy_elections == 0
    assert scene.log(B).startswith("0-99:0")
    scene.clients.check_all_is_there()


def _b_leads_uncleanly() -> Scene:
    scene = _a_alone_has_the_rest(unclean=True)
    assert scene.the_leader() == B
    return scene


def test_unclean_on() -> None:
    """5.8: the one that is here leads, and what that costs is counted in the metadata."""
    scene = _b_leads_uncleanly()
    cluster = scene.cluster
    view = cluster.view()
    epoch = view.leader_epoch
    assert scene.end(B) == 60
    assert scene.epochs(B) == {0: 0, epoch: 60}
    assert view.lossy_elections == 1
    lost = cluster.witness.truth(KEY).lost
    assert (lost[0].base, lost[-1].end) == (60, 100)
    scene.together(A, B)
    cluster.start(A)
    scene.until_isr(A, B)
    said = [one for f, t, one in scene.said if (f, t) == (B, A) and isinstance(one, EpochEnd)]
    assert [(one.epoch, one.end) for one in said] == [(0, 60)]
    assert scene.end(A) == 60
    cut = {"from": 100, "to": 60, "last_epoch": 0, "leader_epoch": epoch, "committed": 40}
    assert (A, "truncated", KEY, cut) in cluster.notes


def test_what_an_election_loses_is_counted_to_the_record() -> None:
    """Power is lost by all who had 60-99; what their checkpoints say of them is in the metadata."""
    scene = Scene(A, B, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A, 60)
    scene.settle()
    for one in (A, B):
        scene.sync(one)
    for _ in range(4):
        scene.wrote(A, 10)
    scene.settle()
    for one in (A, B):
        scene.checkpoint(one)
        cluster.lives[one].storage.sync()
    assert scene.high(A) == scene.high(B) == 100
    for one in (A, B):
        cluster.lose_power(one)
    for one in (A, B):
        scene.start(one)
    leader = scene.the_leader()
    view = cluster.view()
    assert scene.end(leader) == 60
    assert (view.lossy_elections, view.lost_records) == (1, 40)
    lost = cluster.witness.truth(KEY).lost
    assert (lost[0].base, lost[-1].end) == (60, 100)
    assert [one.lost.records for one in cluster.coordinator.lossy] == [40]


def test_offset_out_of_range_after_rollback() -> None:
    """5.9: a consumer that read what is lost is told so, by its epoch or by its offset."""
    scene = _b_leads_uncleanly()
    clients = scene.clients
    scene.wrote(B, 10)
    epoch = scene.cluster.view().leader_epoch
    assert (scene.end(B), scene.high(B)) == (70, 70)
    assert clients.epoch_end(B, 0) == (0, 0, 60)
    told = clients.fetch(B, 80, last_epoch=0).diverging_epoch
    assert told is not None
    assert (told.epoch, told.end_offset) == (0, 60)
    assert clients.fetch(B, 80).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    scene.wrote(B, 50)  # now there is something at 80, and it is something else
    assert scene.end(B) == 120
    assert clients.fetch(B, 80).error_code == 0  # who knows no epochs cannot be told
    told = clients.fetch(B, 80, last_epoch=0).diverging_epoch
    assert told is not None
    assert (told.epoch, told.end_offset) == (0, 60)
    assert clients.fetch(B, 80, last_epoch=epoch).diverging_epoch is None


def test_hw_truncation_divergence_with_eligible_leaders() -> None:
    """5.2: after both lost power neither leads before the other is back; the one with more does."""
    scene = Scene(A, B)
    cluster = scene.cluster
    scene.wrote(A)
    scene.settle()
    scene.sync(B)
    scene.wrote(A)
    scene.settle()
    scene.sync(A)
    cluster.lose_power(A)
    cluster.lose_power(B)
    scene.start(B)
    cluster.run(2_000)
    assert (scene.log(B), scene.leader()) == ("0-0:0", None)
    cluster.start(A)
    assert scene.the_leader() == A
    scene.until_isr(A, B)
    assert scene.log(A) == scene.log(B) == "0-1:0"
    assert cluster.witness.truth(KEY).lost == []
    scene.clients.check_all_is_there()


def test_last_replica_standing() -> None:
    """5.10, KIP-966: the last one in sync lost power; the eligible one leads."""
    scene = Scene(A, B, C)
    cluster = scene.cluster
    for _ in range(9):
        scene.wrote(A, 10)
    scene.settle()
    scene.sync(C)
    cluster.kill(A)
    scene.until_isr(B, C)
    scene.wrote(scene.the_leader(), 10)
    scene.settle()
    cluster.kill(B)
    scene.until_isr(C)
    assert scene.the_leader() == C
    assert (scene.high(C), set(cluster.view().elr)) == (100, {B})
    cluster.lose_power(C)
    scene.start(C)
    cluster.run(2_000)
    assert (scene.end(C), scene.leader(), scene.isr()) == (90, None, set())
    assert set(cluster.view().elr) == {B}
    cluster.start(B)
    assert scene.the_leader() == B
    assert scene.end(B) == 100
    scene.until_isr(B, C)
    assert scene.end(C) == 100
    assert cluster.view().lossy_elections == 0
    cluster.start(A)
    scene.until_isr(A, B, C)
    scene.clients.check_all_is_there()


def _a_lost_the_front_of_its_log() -> tuple[Scene, int]:
    """A led, alone wrote several segments that nobody acknowledged, and lost power; of its log
    only what begins above the high watermark is left. B leads. Also where A's log begins now."""
    scene = Scene(A, B, C, segment_bytes="4096")
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.apart(A, B)
    scene.apart(A, C)
    for _ in range(20):
        scene.clients.write(A, 3, size=500)
    cluster.run(10)
    scene.sync(A)
    names = [one for one in cluster.replica(A).log.directory.names() if one.endswith(".log")]
    first, second, *_ = sorted(names)
    cluster.lose_power(A)
    cluster.disks[A].directory().directory("t-0").unlink(first)
    cluster.disks[A].directory().unlink(RECOVERY_POINTS)
    cluster.until(lambda: cluster.leads(B))
    scene.until_isr(B, C)
    scene.wrote(B)
    scene.settle()
    return scene, int(second.removesuffix(".log"))


def test_a_follower_that_lost_the_front_of_its_log_tells_of_no_committed_record_it_cut() -> None:
    scene, start = _a_lost_the_front_of_its_log()
    cluster = scene.cluster
    scene.start(A)
    assert cluster.replica(A).log.start == start > scene.end(B) == 6
    scene.together(A, B)
    scene.together(A, C)
    scene.until_isr(A, B, C)
    (cut,) = [fields for me, word, _, fields in cluster.notes if (me, word) == (A, "truncated")]
    assert (cut["to"], cut["committed"]) == (5, 0)
    scene.settle()
    assert scene.high(A) == 6
    scene.clients.check_all_is_there()


@pytest.mark.parametrize("lives", [1, 2], ids=["heard at once", "killed before it is heard"])
def test_an_election_counts_no_record_as_lost_for_where_a_log_begins_after_a_loss(
    lives: int,
) -> None:
    """All lose power. B is elected, for it has the latest epoch; A's log begins behind B's end."""
    scene, start = _a_lost_the_front_of_its_log()
    cluster = scene.cluster
    for _ in range(1, lives):
        scene.start(A)
        assert cluster.replica(A).log.start == start > scene.end(B)
        scene.checkpoint(A)
        cluster.kill(A)
    for one in (B, C):
        scene.sync(one)
        scene.checkpoint(one)
        cluster.lives[one].storage.sync()
    for one in (B, C):
        cluster.lose_power(one)
    cluster.network.heal()
    started = [cluster.start(one) for one in (A, B, C)]
    cluster.until(lambda: all(life.serving for life in started))
    leader = scene.the_leader()
    view = cluster.view()
    assert leader in {B, C}
    assert (view.lossy_elections, view.lost_records) == (1, 0)
    scene.until_isr(A, B, C)
    scene.clients.check_all_is_there()


@pytest.mark.parametrize("more", [0, 3], ids=["as long", "longer"])
def test_a_log_without_its_front_does_not_lead_before_one_that_has_all_committed(more: int) -> None:
    """It would have the others give up the records that they alone still have."""
    scene = Scene(A, B, C, segment_bytes="4096")
    cluster = scene.cluster
    for _ in range(10):
        scene.clients.wrote(A, 3, size=500)
    scene.settle()
    if more:
        scene.apart(A, B)
        scene.apart(A, C)
        scene.clients.write(A, more, size=500)
        cluster.run(10)
    _all_lose_power_and_these_their_front(scene, A)
    view = cluster.view()
    assert view.leader in {B, C}
    assert (view.lossy_elections, view.lost_records) == (1, 0)
    scene.until_isr(A, B, C)
    assert [cluster.replica(one).log.start for one in (A, B, C)] == [0, 0, 0]
    assert not cluster.witness.truth(KEY).lost
    scene.clients.check_all_is_there()


def test_the_records_before_a_lost_front_are_counted_where_it_leads() -> None:
    scene = Scene(A, B, segment_bytes="4096")
    cluster = scene.cluster
    for _ in range(10):
        scene.clients.wrote(A, 3, size=500)
    scene.settle()
    start = _all_lose_power_and_these_their_front(scene, A, B)
    lost = cluster.witness.truth(KEY).lost
    assert (lost[0].base, lost[-1].end) == (0, start)
    view = cluster.view()
    assert (view.lossy_elections, view.lost_records) == (1, start)
    (said,) = cluster.coordinator.lossy
    assert (said.lost.start, said.lost.records) == (0, start)
    scene.until_isr(A, B)
    scene.clients.check_all_is_there()
    assert cluster.leads(A)
    scene.apart(A, B)
    scene.clients.write(A, 3)
    cluster.run(10)
    _all_lose_power_and_these_their_front(scene)
    view = cluster.view()
    assert (view.lossy_elections, view.lost_records) == (2, start), "it was counted before"
    assert view.leader == A, "it has more than B, and B's log starts no earlier"
    scene.until_isr(A, B)
    scene.clients.check_all_is_there()


def _all_lose_power_and_these_their_front(scene: Scene, *robbed: BrokerId) -> int:
    """All have flushed all they hold, but for the first segment of these. Where that ended."""
    cluster = scene.cluster
    brokers = list(cluster.view().replicas)
    for one in brokers:
        scene.sync(one)
        scene.checkpoint(one)
        cluster.lives[one].storage.sync()
    names = [one for one in cluster.replica(A).log.directory.names() if one.endswith(".log")]
    first, second, *_ = sorted(names)
    for one in brokers:
        cluster.lose_power(one)
    for one in robbed:
        cluster.disks[one].directory().directory("t-0").unlink(first)
        cluster.disks[one].directory().unlink(RECOVERY_POINTS)
    cluster.network.heal()
    started = [cluster.start(one) for one in brokers]
    cluster.until(lambda: all(life.serving for life in started))
    scene.the_leader()
    return int(second.removesuffix(".log"))
