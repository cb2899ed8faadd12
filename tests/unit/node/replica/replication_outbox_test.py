"""What brokers say to each other in one turn, gathered into messages."""

from pathlib import Path

from harness.machines.brokers import ME, HandlerBench
from harness.machines.peers import Peer, replicated, shown
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.node.replica.outbox import Address, Outbox
from tidelog.wire.replication import (
    FROM_FOLLOWER,
    Bytes,
    Detach,
    Head,
    Join,
    Open,
    Opened,
    decode,
    encode,
)

OTHER = BrokerId(7)
LIFE = Incarnation(107)


def bench_that_follows_and_leads(tmp_path: Path) -> HandlerBench:
    """One partition it leads, one that the other broker leads."""
    bench = HandlerBench(tmp_path)
    Peer(bench, OTHER)
    for leader in (ME, OTHER):
        view = shown(ME, OTHER, leader=leader, replicas=(ME, OTHER))
        replicated(bench, f"led-by-{leader}", view)
    return bench


def test_both_ends_of_two_streams_of_the_same_number_speak_for_themselves(tmp_path: Path) -> None:
    bench = bench_that_follows_and_leads(tmp_path)
    machine = bench.replication
    ((peer, parts),) = machine.take_sends()
    head, ((asked, _),) = decode(parts)
    assert peer == OTHER
    assert isinstance(asked, Open)
    mine = Head(OTHER, LIFE, Incarnation(1), head.stream)
    machine.received(bench.now, encode(mine, [(Opened(0, 0), None)]))
    machine.received(bench.now, encode(mine, [(Open(Offset(3)), None), (Join(1), None)]))
    said = [decode(parts).entries for _, parts in machine.take_sends()]
    assert len(said) == 2
    for entries in said:
        ends = {isinstance(message, FROM_FOLLOWER) for message, _ in entries}
        assert len(ends) == 1, entries


def test_what_is_said_after_a_message_s_end_goes_as_the_next_one() -> None:
    woken: list[None] = []
    outbox = Outbox(ME, Incarnation(1), lambda: woken.append(None))
    to, other = Address(BrokerId(2), Incarnation(7), 1), Address(BrokerId(3), Incarnation(8), 1)
    outbox.end_message(to)  # of nothing
    outbox.say(to, Detach(1))
    outbox.say(other, Detach(2))
    outbox.end_message(to)
    outbox.say(to, Bytes(3, Offset(0), Offset(0), Offset(0)), b"batch")
    taken = [(said, decode(parts).entries) for said, parts in outbox.take()]
    assert [(said, [one for one, _ in entries]) for said, entries in taken] == [
        (to, [Detach(1)]),
        (other, [Detach(2)]),
        (to, [Bytes(3, Offset(0), Offset(0), Offset(0))]),
    ]
    assert (len(woken), outbox.take()) == (1, [])


def test_what_nobody_wants_to_hear_is_forgotten_with_its_ended_messages() -> None:
    outbox = Outbox(ME, Incarnation(1), lambda: None)
    to = Address(BrokerId(2), Incarnation(7), 1)
    outbox.say(to, Detach(1))
    outbox.end_message(to)
    outbox.say(to, Detach(2))
    outbox.forget(to)
    assert outbox.take() == []
