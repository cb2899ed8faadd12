"""Transactions as a broker sees them: batches of a producer, and the markers that end them."""

from collections.abc import Sequence
from typing import Any

from harness.logs.transactions import Writer
from harness.machines.brokers import START_MS, HandlerBench
from tidelog.kernel.ids import Epoch, Partition, ProducerEpoch, ProducerId
from tidelog.kernel.instant import Instant
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.groups.requests import CommitInTransaction, OffsetToCommit, Who
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import read_header
from tidelog.wire.transactions import Marker

NOBODY = Who("", None, -1)


def write(
    bench: HandlerBench, writer: Writer, count: int = 1, *, topic: str = "t", size: int = 10
) -> int:
    """Records of a transaction, which the log's leader takes; their first offset."""
    replica, leader = bench.broker.replicas.led(topic, 0)
    view = writer.batch(count, size=size)
    writer.sequence += count
    header = read_header(view)
    done = replica.log.append_as_leader(bench.now, START_MS, view, header, leader.epoch)
    bench.replication.appended(bench.now, replica, view)
    return done.first_offset


def marker_of(
    writer: Writer, *, committed: bool, topic: str = "t", partition: int = 0, leader_epoch: int = 0
) -> Marker:
    return Marker(
        topic=topic,
        partition=partition,
        leader_epoch=Epoch(leader_epoch),
        producer_id=ProducerId(writer.producer_id),
        producer_epoch=ProducerEpoch(writer.epoch),
        committed=committed,
    )


class Marked:
    """What markers came to, once that is told."""

    def __init__(
        self,
        bench: HandlerBench,
        *markers: Marker,
        epoch: int = 1,
        deadline: Instant | None = None,
    ) -> None:
        self.outcomes: tuple[ErrorCode, ...] | None = None
        bench.broker.marks.mark(bench.now, Epoch(epoch), markers, self._done, deadline)

    def _done(self, _now: Instant, outcomes: Sequence[ErrorCode]) -> None:
        assert self.outcomes is None, "told twice"
        self.outcomes = tuple(outcomes)


def group_partition(bench: HandlerBench, group: str) -> Partition:
    topic = bench.image.names[OFFSETS_TOPIC]
    return Partition(partition_of(group, len(topic.partitions)))


def end_in_group(
    bench: HandlerBench, group: str, producer_id: int, *, committed: bool, epoch: int = 0
) -> Marked:
    """Have a transaction ended in the partition that keeps the group."""
    partition = group_partition(bench, group)
    _, leader = bench.broker.replicas.led(OFFSETS_TOPIC, partition)
    writer = Writer(producer_id, epoch)
    marker = marker_of(
        writer,
        committed=committed,
        topic=OFFSETS_TOPIC,
        partition=partition,
        leader_epoch=leader.epoch,
    )
    return Marked(bench, marker)


def pend(
    bench: HandlerBench,
    group: str,
    offset: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    who: Who = NOBODY,
    topic: str = "t",
) -> Any:
    """Commit an offset of partition 0 in a transaction; None, or why not."""
    row = OffsetToCommit(topic, bench.image.names[topic].id, 0, offset, -1, "")
    said: list[Any] = []
    ask = CommitInTransaction(group, who, producer_id, epoch, (row,))
    bench.broker.groups.ask(bench.now, group, ask, said.append)
    (answer,) = said
    return answer
