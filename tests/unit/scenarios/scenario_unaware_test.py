"""A broker that still takes itself for the leader, after an election of which it has not heard lost
what it holds. What it tells clients was committed in its epoch, as if its answer had come late."""

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Partition
from tidelog.wire.errors import ErrorCode

KEY = ("t", Partition(0))


def _all_goes_to_b_and_is_lost(scene: Scene) -> None:
    """A hears nothing of the coordinator; B is made the only replica, and gets an empty disk."""
    cluster = scene.cluster
    cluster.network.cut_from(COORDINATOR_ID, A)
    cluster.begin_reassign(cluster.lives[C], B)
    cluster.until(lambda: cluster.view().replicas == (B,))
    cluster.until(lambda: cluster.leads(B, "t", 0))
    cluster.wipe(B)
    scene.start(B)
    assert scene.the_leader() == B
    assert cluster.view().lossy_elections == 1


def test_a_leader_that_has_not_heard_of_a_loss_shows_what_was_committed_before_it() -> None:
    scene = Scene(A, B)
    cluster, clients = scene.cluster, scene.clients
    written = scene.wrote(A, 5)
    scene.settle()
    _all_goes_to_b_and_is_lost(scene)
    scene.wrote(B, 3)

    assert clients.fetch(A, 0).error_code == 0
    epoch = cluster.view().leader_epoch
    told = clients.fetch(A, 0, epoch=epoch).error_code  # by who has heard of the later leader
    assert told == ErrorCode.UNKNOWN_LEADER_EPOCH
    truth = cluster.witness.truth(KEY)
    assert truth.may_be_told(written.offset, written.crc, epoch - 1)
    assert not truth.may_be_told(written.offset, written.crc, epoch)  # by nobody who leads since

    cluster.mend_all()
    scene.settle()
    assert clients.fetch(A, 0).error_code != 0
    clients.check_all_is_there()


def test_a_leader_that_has_not_heard_of_a_loss_answers_what_was_on_all_before_it() -> None:
    scene = Scene(A, B)
    cluster, clients = scene.cluster, scene.clients
    scene.wrote(A, 5)
    scene.settle()
    on_the_way: list[list[bytes]] = []
    look = cluster.look_at_message

    def hold(sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        if (sender, to) == (B, A):
            on_the_way.append(parts)
        return (sender, to) != (B, A) and look(sender, to, parts)

    cluster.look_at_message = hold
    late = clients.write(A, 2)
    cluster.until(lambda: scene.end(B) == 7)
    _all_goes_to_b_and_is_lost(scene)
    assert not late.is_over
    cluster.look_at_message = look
    for parts in on_the_way:  # B's first life said that it has the batch
        cluster.lives[A].received(parts)
    assert late.is_acked
    cluster.mend_all()
    scene.settle()
    clients.check_all_is_there()


def _b_leads_alone(*, unclean: bool) -> Scene:
    """A alone had the partition; while it moves to B and C, A dies, and comes back without the
    last record. Only B is in sync."""
    allowed = "true" if unclean else "false"
    scene = Scene(A, min_isr=1, unclean_leader_election_enable=allowed)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.apart(A, C)
    scene.apart(B, C)
    cluster.reassign(B, C)
    scene.until_isr(A, B)
    cluster.kill(A)
    assert scene.the_leader() == B
    scene.apart(A, B)
    scene.start(A)
    scene.wrote(B, 1)
    assert scene.isr() == {B}
    return scene


def _a_is_elected_uncleanly() -> Scene:
    """The move is cancelled, and B, which leads, hears nothing of the coordinator."""
    scene = _b_leads_alone(unclean=True)
    cluster = scene.cluster
    cluster.network.cut_from(COORDINATOR_ID, B)
    cluster.begin_reassign(cluster.lives[A])
    cluster.until(lambda: cluster.leads(A))
    return scene


def test_a_leader_alone_in_sync_acknowledges_until_it_hears_that_a_cancelled_move_deposed_it() -> (
    None
):
    scene = _a_is_elected_uncleanly()
    cluster, clients = scene.cluster, scene.clients
    view = cluster.view()
    assert (view.replicas, view.leader, view.lossy_elections) == ((A,), A, 1)

    late = scene.wrote(B, 2)
    truth = cluster.witness.truth(KEY)
    assert truth.has_lost(late.offset, late.crc)
    assert truth.may_be_told(late.offset, late.crc, view.leader_epoch - 1)
    assert not truth.may_be_told(late.offset, late.crc, view.leader_epoch)
    cluster.mend_all()
    scene.settle()
    refused = clients.write(B)
    cluster.until(lambda: refused.is_over)
    assert not refused.is_acked
    scene.wrote(A, 3)
    clients.check_all_is_there()


def test_a_deposed_leader_that_is_fenced_is_expected_to_acknowledge_nothing_more() -> None:
    scene = _a_is_elected_uncleanly()
    cluster = scene.cluster
    unaware = cluster.witness.truth(KEY).unaware
    assert [broker for broker, _, _ in unaware] == [B]
    cluster.pause(B)
    cluster.until(lambda: not cluster.image.is_alive(B))
    assert not unaware
    cluster.resume(B)
    assert not scene.clients.write(B).is_acked


def test_a_cancel_that_would_lose_what_a_living_leader_holds_is_refused_by_default() -> None:
    scene = _b_leads_alone(unclean=False)
    before = scene.cluster.view()
    assert scene.cluster.reassign() == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert scene.cluster.view() == before
    scene.wrote(B, 2)
