"""Memory for what all clients send: bounded in total, and nobody waits for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.connected import Connected
from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms
from tidelog.node.net.received import Account, ReceivedBytes
from tidelog.wire.messages import k00_produce, k18_api_versions

OWN = limits.RECEIVE_BUFFER_BYTES_FIRST
ORDINARY = limits.RECEIVE_BUFFER_BYTES_STEADY
LARGE = 4 * ORDINARY
LIMIT = 8 * ORDINARY
SECOND = ms(1_000)


class Peer:
    """One connection, as the memory sees it."""

    def __init__(self, received: ReceivedBytes) -> None:
        self.granted = self.relaxed = 0
        self.come = 1
        self.account: Account = received.open(self._wake, self._relax, lambda: self.come)

    def _wake(self) -> None:
        self.granted += 1

    def _relax(self) -> None:
        self.relaxed += 1


def holding(received: ReceivedBytes, capacity: int) -> Peer:
    peer = Peer(received)
    assert peer.account.may_hold(capacity)
    return peer


def waiting(received: ReceivedBytes, capacity: int) -> Peer:
    peer = Peer(received)
    assert not peer.account.may_hold(capacity)
    return peer


def full(received: ReceivedBytes) -> list[Peer]:
    """All of it is held by requests that are not complete."""
    large = holding(received, LARGE + OWN)
    ordinary = [holding(received, ORDINARY) for _ in range(4)]
    return [large, *ordinary]


def crowd() -> tuple[ReceivedBytes, list[Peer]]:
    """One large request and one ordinary one are beyond the limit; nobody else may be."""
    received = ReceivedBytes(LIMIT)
    peers = full(received)
    for capacity in (ORDINARY, LARGE):
        peer = Peer(received)
        assert peer.account.may_hold(capacity), "one goes on, else nobody ever would"
        peers.append(peer)
    return received, peers


def test_who_needs_no_more_than_a_small_buffer_never_waits() -> None:
    received, _ = crowd()
    assert holding(received, OWN).account.held == 0


def test_large_requests_leave_room_for_ordinary_ones() -> None:
    received = ReceivedBytes(LIMIT)
    first = holding(received, LARGE + OWN)
    second = holding(received, LARGE)
    assert second.account.held, "the one that waits longest goes on"
    third = waiting(received, LARGE)
    assert holding(received, ORDINARY).account.held
    first.account.close()
    assert third.account.held == 0, "one at a time goes beyond the limit"
    second.account.close()
    assert third.account.held


def test_the_total_is_exceeded_by_two_requests_at_most() -> None:
    received, _ = crowd()
    for _ in range(50):
        waiting(received, ORDINARY)
        waiting(received, LARGE)
    assert received.used <= LIMIT + ORDINARY + LARGE


def test_those_who_wait_get_on_in_their_order_as_memory_is_given_back() -> None:
    received, peers = crowd()
    first, second = waiting(received, ORDINARY), waiting(received, ORDINARY)
    for peer in peers[:4]:
        peer.account.holds(OWN)
    assert (first.granted, second.granted) == (1, 1)
    third = waiting(received, LARGE)
    for peer in peers[4:]:
        peer.account.holds(OWN)
        peer.account.completed()
    assert third.granted == 1
    assert received.used == sum(one.account.held for one in (first, second, third))


def test_when_the_favoured_request_is_complete_the_next_one_is_favoured() -> None:
    received, peers = crowd()
    favoured = peers[-1]
    waits = waiting(received, LARGE)
    assert favoured.account.may_hold(2 * LARGE), "it may grow to its end"
    favoured.account.completed()
    assert waits.granted == 1


def test_a_favoured_request_that_turns_out_to_be_large_lets_an_ordinary_one_go_on() -> None:
    received, peers = crowd()
    ordinary = waiting(received, ORDINARY)
    assert not peers[-2].account.may_hold(LARGE)
    assert ordinary.granted == 1


def test_whoever_is_idle_gives_memory_back_when_others_begin_to_wait() -> None:
    received = ReceivedBytes(LIMIT)
    peers = full(received)
    assert not any(peer.relaxed for peer in peers)
    holding(received, ORDINARY)
    assert all(peer.relaxed == 1 for peer in peers)


def ended_after(received: ReceivedBytes, milliseconds: int) -> set[Account]:
    """Who must end by then; it was looked at each half second."""
    ended: set[Account] = set()
    for at in range(0, milliseconds + 1, 500):
        ended |= set(received.relieve(Instant(ms(at))))
    return ended


def test_a_request_that_does_not_come_ends_its_connection_while_others_wait() -> None:
    received, peers = crowd()
    assert received.relieve(Instant(0)) == [], "nobody waits yet"
    waiting(received, ORDINARY)
    peers[1].come = 0
    assert ended_after(received, limits.STALLED_REQUEST_MS) == set()
    ended = ended_after(received, limits.STALLED_REQUEST_MS + 1_000)
    assert peers[0].account in ended
    assert peers[1].account not in ended, "nothing has come of its next request"


def test_a_request_that_comes_byte_by_byte_ends_its_connection_later() -> None:
    received, peers = crowd()
    waiting(received, ORDINARY)
    for second in range(limits.INCOMPLETE_REQUEST_MS // 1_000 + 1):
        peers[0].come += 1
        assert peers[0].account not in received.relieve(Instant(second * SECOND))
    late = Instant(ms(limits.INCOMPLETE_REQUEST_MS) + SECOND)
    peers[0].come += 1
    assert peers[0].account in received.relieve(late)


def test_a_request_that_waits_itself_is_not_ended_for_it() -> None:
    received, peers = crowd()
    grows = peers[1]
    assert not grows.account.may_hold(2 * ORDINARY)
    for second in range(30):
        assert grows.account not in received.relieve(Instant(second * SECOND))


def test_a_favoured_request_that_is_never_begun_ends_its_connection_while_others_wait() -> None:
    """It has come, and waits for a request before it on its connection, for as long as its client
    likes: nothing is read there, so nothing of it is missing."""
    received, peers = crowd()
    stuck, busy = peers[-1], waiting(received, LARGE)
    stuck.come = 0
    for second in range(limits.INCOMPLETE_REQUEST_MS // 1_000 + 1):
        assert stuck.account not in received.relieve(Instant(second * SECOND))
    late = Instant(ms(limits.INCOMPLETE_REQUEST_MS) + SECOND)
    assert stuck.account in received.relieve(late)
    stuck.account.close()
    assert busy.granted == 1
    assert busy.account not in received.relieve(late), "its own time begins now"


def test_a_favoured_request_that_keeps_nobody_waiting_has_all_the_time_it_likes() -> None:
    received, peers = crowd()
    waiting(received, ORDINARY)
    peers[-1].come = 0
    for second in range(30):
        assert peers[-1].account not in received.relieve(Instant(second * SECOND))


def test_a_complete_request_starts_its_connection_s_time_again() -> None:
    received, peers = crowd()
    waiting(received, ORDINARY)
    received.relieve(Instant(0))
    assert peers[1].account.watched
    peers[1].account.completed()
    assert peers[1].account not in received.relieve(Instant(20 * SECOND))


def test_who_leaves_while_waiting_is_forgotten() -> None:
    received, peers = crowd()
    gone, stays = waiting(received, ORDINARY), waiting(received, ORDINARY)
    gone.account.close()
    for peer in peers:
        peer.account.close()
    assert (gone.granted, stays.granted) == (0, 1)
    assert received.used == stays.account.held


def test_whose_request_is_complete_without_more_memory_waits_no_more() -> None:
    received, peers = crowd()
    idle, busy = waiting(received, ORDINARY), waiting(received, ORDINARY)
    assert idle.account.watched, "its connection tells when the request is complete"
    idle.account.completed()
    peers[-2].account.completed()
    assert (idle.granted, busy.granted) == (0, 1), "it would be favoured and never send more"


def test_copies_of_requests_count_and_nobody_is_favoured_on_top_of_them() -> None:
    received = ReceivedBytes(LIMIT)
    received.keep(LIMIT)
    peer = waiting(received, LARGE)
    received.release(LIMIT)
    assert peer.granted == 1
    assert received.used == peer.account.held


def test_a_new_limit_lets_those_who_wait_get_on() -> None:
    received, _ = crowd()
    peer = waiting(received, LARGE)
    received.bound(4 * LIMIT)
    assert peer.granted == 1


@contextmanager
def connected(folder: Path, limit: int) -> Iterator[Connected]:
    with Connected(folder) as one:
        one.parts.received.bound(limit)
        yield one


VERSIONS = request_bytes(
    k18_api_versions.API,
    3,
    k18_api_versions.ApiVersionsRequest(client_software_name="m", client_software_version="1"),
)
ENDLESS = limits.REQUEST_BYTES_MAX.to_bytes(4, "big")


def test_a_connection_is_not_read_from_while_there_is_no_memory(tmp_path: Path) -> None:
    with connected(tmp_path, 16 * OWN) as one:
        received = one.parts.received
        received.keep(15 * OWN)
        sent = one.send(ENDLESS + bytes(8 * limits.MIB))
        assert sent < 2 * limits.MIB, "the rest does not leave the client"
        assert one.connection.receive_capacity <= 2 * OWN
        received.release(15 * OWN)
        assert one.send(bytes(2 * limits.MIB)) > 0
        assert one.connection.receive_capacity > 2 * OWN


def test_a_large_request_is_served_though_the_memory_is_taken(tmp_path: Path) -> None:
    with connected(tmp_path, ORDINARY) as one:
        one.bench.topic("t", max_message_bytes="10000000")
        holding(one.parts.received, ORDINARY)
        request = produce_request("t", batch_of(bytes(5_000_000)), acks=1)
        frame = request_bytes(k00_produce.API, 9, request)
        assert one.send(frame + VERSIONS) == len(frame) + len(VERSIONS)
        assert one.frame() is not None
        assert one.frame() is not None
        one.parts.received.bound(OWN)
        holding(one.parts.received, ORDINARY)
        waiting(one.parts.received, ORDINARY)
        assert one.send(VERSIONS) == len(VERSIONS)
        assert one.frame() is not None
        assert one.connection.receive_capacity == OWN


def test_the_memory_of_a_connection_that_ends_is_free_at_once(tmp_path: Path) -> None:
    with connected(tmp_path, LIMIT) as one:
        one.send(ENDLESS + bytes(LARGE))
        assert one.connection.receive_capacity >= LARGE
        one.connection.abort()
        assert one.connection.receive_capacity == 0
        assert one.parts.received.used == 0
