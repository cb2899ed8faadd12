"""Streams between brokers: credit, bursts, rings that are left, and whatever gets lost on them."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId, Offset
from tidelog.node.ipc.ring import RingReader
from tidelog.node.replica.feeds import Outgoing
from tidelog.node.replica.leader import UNKNOWN
from tidelog.node.replica.sending import (
    BURST_SHARE,
    CATCH_UP_SHARE,
    CHUNK_BYTES,
    CREDIT_BYTES,
    Sending,
)
from tidelog.wire.replication import (
    Ack,
    Attach,
    Attached,
    Batch,
    Bytes,
    Closed,
    Head,
    LeaveRing,
    LeftRing,
    Message,
    Open,
    Opened,
    Refused,
    State,
    encode,
)

ALL = (A, B, C)


def _sending(scene: Scene, broker: BrokerId = A) -> Sending:
    return scene.cluster.lives[broker].machine._sending


def _stream(scene: Scene, to: BrokerId) -> Outgoing:
    return _sending(scene)._streams[to]


def _nothing(_sender: BrokerId, _to: BrokerId, _one: Message) -> bool:
    return False


def _behind(scene: Scene, batches: int, size: int) -> None:
    """C is away while so much is written, and just back."""
    scene.wrote(A)
    scene.settle()
    scene.cluster.kill(C)
    scene.until_isr(A, B)
    for _ in range(batches):
        scene.clients.wrote(A, size=size)


def test_catch_up_stays_within_its_credit() -> None:
    scene = Scene(*ALL, ring_bytes=64 * 1024)
    _behind(scene, 60, 100_000)
    most = 0
    scene.start(C)

    def measure(_sender: BrokerId, _to: BrokerId, _one: Message) -> bool:
        nonlocal most
        streams = _sending(scene)._streams
        if C in streams:
            most = max(most, streams[C].unacked)
        return False

    scene.lost = measure
    scene.until_isr(*ALL)
    assert CREDIT_BYTES <= most < CREDIT_BYTES + CHUNK_BYTES
    assert _stream(scene, C).unacked == 0
    scene.settle()
    scene.clients.check_all_is_there()


def test_catch_up_goes_by_the_ring_and_takes_no_more_than_its_share_of_it() -> None:
    ring_bytes = 12 * 1024 * 1024
    scene = Scene(*ALL, ring_bytes=ring_bytes)
    _behind(scene, 90, 100_000)
    most = 0
    scene.start(C)

    def measure(_sender: BrokerId, _to: BrokerId, _one: Message) -> bool:
        nonlocal most
        stream = _sending(scene)._streams.get(C)
        most = max(most, 0 if stream is None else stream.unacked)
        return False

    scene.lost = measure
    scene.until_isr(*ALL)
    share = ring_bytes // CATCH_UP_SHARE
    assert share <= most < share + ring_bytes // BURST_SHARE + CHUNK_BYTES
    said = [one for f, t, one in scene.said if (f, t) == (A, C)]
    assert any(isinstance(one, Batch) and one.size > 100_000 * 2 for one in said)
    assert not any(isinstance(one, Bytes) for one in said)
    assert _stream(scene, C).unacked == 0
    scene.settle()
    scene.clients.check_all_is_there()


def test_catch_up_beside_a_full_ring_goes_through_the_pipe() -> None:
    scene = Scene(*ALL, ring_bytes=3 * 1024 * 1024, min_isr=1, lag_ms=60_000)
    _behind(scene, 60, 100_000)
    scene.cluster.supervisor_is_silent = True
    scene.cluster.pause(B)
    ring = _sending(scene)._ring
    assert ring is not None
    while ring.put(bytes(100_000)) is not None:
        ring.lend(B, 0, ring.size)
    scene.start(C)
    scene.cluster.until(lambda: scene.end(C) == scene.end(A), within_ms=5_000)
    said = [one for f, t, one in scene.said if (f, t) == (A, C)]
    assert any(isinstance(one, Bytes) for one in said)


def test_catch_up_waits_where_nothing_is_acknowledged() -> None:
    scene = Scene(*ALL, ring_bytes=0, lag_ms=60_000)
    _behind(scene, 60, 100_000)
    scene.lost = lambda sender, _to, one: sender == C and isinstance(one, Ack)
    scene.cluster.start(C)
    scene.cluster.run(900)
    got = scene.end(C)
    assert got < scene.end(A)
    scene.cluster.run(5_000)
    assert scene.end(C) == got
    scene.lost = _nothing
    scene.until_isr(*ALL)  # the ack is asked for again


def test_the_switch_to_live_leaves_no_gap_while_appends_go_on() -> None:
    scene = Scene(*ALL, ring_bytes=64 * 1024)
    _behind(scene, 40, 100_000)
    scene.cluster.start(C)
    while scene.isr() != set(ALL):
        scene.clients.write(A, size=3_000)
        scene.cluster.run(0.3)
    scene.settle()
    for _ in range(20):
        scene.wrote(A)
    said = [one for f, t, one in scene.said if (f, t) == (A, C)]
    attaches = [one for f, _, one in scene.said if f == C and isinstance(one, Attach)]
    assert len(attaches) == 1  # nothing was attached anew for a gap
    assert any(isinstance(one, Bytes) for one in said)
    assert isinstance(next(o for o in reversed(said) if not isinstance(o, State)), Batch)
    scene.settle()
    scene.clients.check_all_is_there()


def test_batches_go_by_the_ring_and_large_ones_as_bytes() -> None:
    scene = Scene(*ALL, ring_bytes=4_096)
    scene.wrote(A)
    scene.settle()
    scene.said.clear()
    scene.wrote(A)
    scene.clients.wrote(A, size=2_000)
    scene.settle()
    kinds = [type(one) for f, t, one in scene.said if (f, t) == (A, B) and hasattr(one, "after")]
    assert kinds == [Batch, Bytes]


def test_who_holds_the_ring_up_leaves_it_and_comes_back() -> None:
    scene = Scene(*ALL, ring_bytes=4_096, min_isr=1)
    scene.wrote(A)
    scene.settle()
    scene.cluster.network.slow(A, C, 100.0)
    for _ in range(30):
        scene.clients.write(A, acks=1, size=300)
        scene.cluster.run(1)
    assert scene.end(B) == scene.end(A)
    scene.cluster.network.slow(A, C, 0.0)
    scene.cluster.run(1_000)
    assert any(t == C and isinstance(one, LeaveRing) for _, t, one in scene.said)
    assert any(f == C and isinstance(one, LeftRing) for f, _, one in scene.said)
    assert _stream(scene, C).joined == 1  # the same ring, again
    scene.said.clear()
    scene.wrote(A)
    scene.settle()
    assert any(t == C and isinstance(one, Batch) for _, t, one in scene.said)
    scene.clients.check_all_is_there()


def test_who_does_not_leave_the_ring_keeps_it_and_the_others_get_a_new_one() -> None:
    scene = Scene(*ALL, ring_bytes=4_096, min_isr=1, lag_ms=60_000)
    scene.wrote(A)
    scene.settle()
    scene.cluster.supervisor_is_silent = True
    ring = scene.cluster.lives[C].machine._receiving._streams[A].ring
    assert ring is not None
    scene.cluster.pause(C)
    for _ in range(30):
        scene.clients.write(A, acks=1, size=300)
        scene.cluster.run(1)
    held = bytes(ring._data)
    scene.cluster.run(1_000)
    for _ in range(30):
        scene.clients.write(A, acks=1, size=300)
        scene.cluster.run(1)
    assert (_stream(scene, B).joined, _stream(scene, C).joined) == (2, 0)
    assert bytes(ring._data) == held  # it may be in the middle of a copy
    scene.cluster.resume(C)
    scene.cluster.run(2_000)
    assert _stream(scene, C).joined == 2
    scene.wrote(A)
    scene.settle()
    scene.clients.check_all_is_there()


def test_an_attach_from_the_future_waits_for_the_leader_s_metadata() -> None:
    scene = Scene(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.cluster.network.cut(B, 3_000)  # B will lead, and be the last to know
    scene.cluster.supervisor_is_silent = True
    scene.cluster.kill(A)
    scene.cluster.timeline.after(300, lambda: scene.cluster.mend(B, 3_000, lose=False))
    scene.said.clear()
    scene.cluster.elect(B, C)
    scene.wrote(B)
    attaches = [one for f, t, one in scene.said if (f, t) == (C, B) and isinstance(one, Attach)]
    assert len(attaches) == 1
    answered = [
        one for f, t, one in scene.said if (f, t) == (B, C) and isinstance(one, Attached | Refused)
    ]
    assert [type(one) for one in answered] == [Attached]


@pytest.mark.parametrize("kind", [Attach, Attached])
def test_an_attach_without_an_answer_disturbs_no_other_partition(kind: type[Message]) -> None:
    """It alone is repeated: in a new stream all the others would have to vouch again."""
    scene = Scene(*ALL, partitions=2)
    cluster = scene.cluster
    scene.wrote(A)
    scene.settle()
    channels: set[int] = set()

    def lost(sender: BrokerId, to: BrokerId, one: Message) -> bool:
        if (sender, to) == (B, A) and isinstance(one, Attach) and one.partition == 1:
            channels.add(one.channel)
        on_it = isinstance(one, Attach | Attached) and one.channel in channels
        return {sender, to} == {A, B} and isinstance(one, kind) and on_it

    scene.lost = lost
    cluster.elect(A, B, C, partition=1)
    scene.said.clear()
    for _ in range(50):
        cluster.run(100)
        scene.wrote(A)
    assert not any(isinstance(one, Open) for _, _, one in scene.said)
    assert 5 <= len(channels) <= 12
    scene.lost = _nothing
    scene.cluster.until(lambda: scene.isr(1) == {A, B, C}, within_ms=2_000)


@pytest.mark.parametrize("kind", [Batch, Bytes])
def test_a_lost_last_message_is_found_out(kind: type[Message]) -> None:
    scene = Scene(*ALL, ring_bytes=4_096 if kind is Batch else 0)
    scene.wrote(A)
    scene.settle()
    scene.lost = lambda _f, to, one: to == C and isinstance(one, kind)
    write = scene.clients.write(A)
    scene.settle()
    assert scene.end(C) == 1
    scene.lost = _nothing
    scene.cluster.until(lambda: write.is_over, within_ms=1_500)
    assert write.is_acked
    assert scene.end(C) == 2


def test_a_lost_ack_is_given_again() -> None:
    scene = Scene(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.lost = lambda sender, _to, one: sender == C and isinstance(one, Ack)
    write = scene.clients.write(A)
    scene.settle()
    scene.lost = _nothing
    scene.cluster.until(lambda: write.is_over, within_ms=1_500)
    assert write.is_acked


def test_the_state_is_repeated_while_something_is_not_acknowledged_and_no_longer() -> None:
    scene = Scene(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.lost = lambda sender, _to, one: sender == C and isinstance(one, Ack)
    scene.clients.write(A)
    scene.said.clear()
    scene.cluster.run(5_050)
    asked = [one for one in scene.heard(State, A, C) if isinstance(one, State) and one.ack_wanted]
    assert 8 <= len(asked) <= 11
    scene.lost = _nothing
    scene.cluster.run(2_000)  # the high watermark that this lets rise is told, too
    scene.said.clear()
    scene.cluster.run(5_000)
    assert scene.heard(State, A, C) == []


def test_a_stream_that_the_leader_ended_is_opened_anew() -> None:
    scene = Scene(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.said.clear()
    scene.cluster.lives[A].turn(lambda: _sending(scene).failed(C))
    scene.cluster.until(lambda: any(isinstance(one, Closed) for _, _, one in scene.said))
    scene.cluster.run(100)
    assert any(f == C and isinstance(one, Open) for f, _, one in scene.said)
    assert any(t == C and isinstance(one, Opened) for _, t, one in scene.said)
    scene.wrote(A)
    scene.settle()
    scene.clients.check_all_is_there()


def test_a_full_pipe_ends_the_stream_and_nothing_else() -> None:
    scene = Scene(*ALL, min_isr=1)
    scene.wrote(A)
    scene.settle()
    scene.cluster.network.capacity = 5
    scene.cluster.network.cut_from(A, C)
    for _ in range(30):
        scene.clients.write(A, acks=1)
        scene.cluster.run(1)
    scene.cluster.run(3_000)
    assert scene.end(B) == scene.end(A)
    assert C not in _sending(scene)._streams
    scene.cluster.network.capacity = 1_000
    scene.together(A, C)
    scene.cluster.until(lambda: scene.end(C) == scene.end(A), within_ms=5_000)


def test_a_log_start_that_passes_a_follower_in_mid_catch_up() -> None:
    scene = Scene(*ALL, ring_bytes=0, lag_ms=60_000)
    _behind(scene, 60, 100_000)
    scene.lost = lambda sender, _to, one: sender == C and isinstance(one, Ack)
    scene.cluster.start(C)
    scene.cluster.run(900)
    assert scene.end(C) < 40
    scene.cluster.replica(A).log.advance_start(45)
    scene.lost = _nothing
    scene.until_isr(*ALL)
    scene.settle()
    replica = scene.cluster.replica(C)
    assert (replica.log.start, replica.log.end) == (45, 61)


def test_credit_of_a_partition_that_is_gone_serves_the_others() -> None:
    scene = Scene(*ALL, ring_bytes=0, lag_ms=60_000)
    scene.cluster.create("u", *ALL, min_insync_replicas="2")
    scene.clients.wrote(A, topic="u")
    _behind(scene, 60, 100_000)
    for _ in range(30):
        scene.clients.wrote(A, topic="u", size=100_000)
    channels: set[int] = set()

    def lost(sender: BrokerId, to: BrokerId, one: Message) -> bool:
        if (sender, to) == (A, C) and isinstance(one, Attached) and not channels:
            channels.add(one.channel)  # the first partition: all of its credit is used up
        return sender == C and isinstance(one, Ack) and one.channel in channels and one.end > 1

    scene.lost = lost
    scene.cluster.start(C)
    scene.cluster.run(400)
    stream = _stream(scene, C)
    assert stream.unacked >= CREDIT_BYTES
    (channel,) = channels
    gone = stream.feeds[channel].replica.topic
    other = "u" if gone == "t" else "t"
    scene.cluster.delete(gone)
    end = scene.cluster.replica(A, other).log.end
    scene.cluster.until(lambda: scene.cluster.replica(C, other).log.end == end, within_ms=3_000)


def test_an_ack_of_an_earlier_leader_epoch_counts_for_nothing() -> None:
    """The same broker leads on in a new epoch, and a follower has not heard of it."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.network.cut_from(BrokerId(3_000), B)
    cluster.elect(A, B, C, epoch=1)
    scene.clients.write(A)
    scene.settle()
    leader = cluster.replica(A).leader
    assert leader is not None
    assert (leader.epoch, leader.ends[C], leader.ends[B], scene.high(A)) == (1, 4, UNKNOWN, 3)


def test_an_ack_of_more_than_was_sent_is_not_believed() -> None:
    scene = Scene(A, B, ring_bytes=0)
    cluster = scene.cluster
    scene.wrote(A)
    scene.settle()
    scene.lost = lambda sender, _to, one: sender == B and isinstance(one, Ack)
    for _ in range(4):
        scene.clients.write(A, acks=1, size=900_000)
    scene.settle()
    (feed,) = _sending(scene)._feeds[cluster.replica(A)]
    assert feed.sent < scene.end(A)
    lives, stream = cluster.lives, feed.outgoing.address.stream
    head = Head(B, lives[B].incarnation, lives[A].incarnation, stream)
    ack = Ack(feed.channel, Offset(scene.end(A)), Offset(0))
    lives[A].received([bytes(part) for part in encode(head, [(ack, None)])])
    assert scene.high(A) == 1


def test_what_a_follower_passed_in_the_ring_may_be_written_over_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leader runs at the same time: as soon as the cursor moves, that place is used again."""
    passed = RingReader.passed

    def overwritten(self: RingReader, position: int) -> None:
        before, size = self._cursor[self._me], len(self._data)
        passed(self, position)
        for at in range(before, position):
            self._data[at % size] = 0

    monkeypatch.setattr(RingReader, "passed", overwritten)
    scene = Scene(A, B)
    for _ in range(20):
        scene.wrote(A, 3)
    scene.settle()
    assert scene.cluster.lives[B].troubles == []
    assert scene.content(B) == scene.content(A)
