"""What brokers say to each other in one turn, gathered into messages."""

from pathlib import Path

from harness.brokers import ME, HandlerBench
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, Partition, Uuid
from tidelog.wire.metadata_records import (
    BrokerRegistered,
    BrokerUnfenced,
    PartitionCreated,
    PartitionView,
    StopKind,
    TopicCreated,
)
from tidelog.wire.replication import FROM_FOLLOWER, Head, Join, Open, Opened, decode, encode

OTHER = BrokerId(7)
LIFE = Incarnation(5)


def registered(epoch: int) -> BrokerRegistered:
    return BrokerRegistered(
        broker=OTHER,
        incarnation=LIFE,
        epoch=Offset(epoch),
        host="127.0.0.1",
        port=9093,
        rack=None,
        log_dirs=(),
        stopped=StopKind.FIRST_START,
        fenced=True,
    )


def bench_that_follows_and_leads(tmp_path: Path) -> HandlerBench:
    """One partition it leads, one that the other broker leads."""
    bench = HandlerBench(tmp_path)
    epoch = int(bench.image.offset) + 1
    bench.replay(registered(epoch), BrokerUnfenced(OTHER, Offset(epoch)))
    topic = Uuid(b"t" * 16)
    views = [
        PartitionView(replicas=(ME, OTHER), isr=(ME, OTHER), leader=leader, leader_epoch=Epoch(0))
        for leader in (ME, OTHER)
    ]
    created = [PartitionCreated(topic, Partition(n), view) for n, view in enumerate(views)]
    bench.replay(TopicCreated(topic, "t"), *created)
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
