"""Offsets that open transactions have committed for a group: they count once their marker says so.

Who coordinates the group says of which partitions something is pending. What it is, and whose,
stands in the group's partition of `__consumer_offsets`, from the first open transaction on.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from tidelog.clients.admin.group_offsets import unstable_offsets
from tidelog.clients.admin.open_transactions import OpenTransaction, open_transactions
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.consumer import Consumer
from tidelog.clients.failures import ClientError
from tidelog.clients.settings import ConsumerSettings
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import Instant, s
from tidelog.node.groups.codec import read
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.groups.records import OffsetRecord
from tidelog.tools.transaction_look import ends_of, now_ms
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import iterate_batches, iterate_records

READ_NS_MAX = s(5)
"""A courtesy: of what is not read by then it is only told that something is pending."""


class Pending(Struct, frozen=True):
    """What is pending of one partition, as far as the log tells."""

    offset: int | None = None
    producer_id: int | None = None
    transactional_id: str | None = None


def pending_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Pending]:
    """Of these partitions and all others that something is pending of."""
    try:
        written = _written(client, group)
    except (ClientError, Rejected, WireError):  # a cluster that tells no more than it must
        written = {}
    unstable = client.run(unstable_offsets(client.view, group, {*partitions, *written}))
    return {one: written.get(one, Pending()) for one in sorted(unstable)}


def _written(client: Client, group: str) -> Mapping[TopicPartition, Pending]:
    client.run(refresh(client.view, [OFFSETS_TOPIC]))
    count = client.view.partition_count(OFFSETS_TOPIC)
    if not count:
        return {}
    place = OFFSETS_TOPIC, Partition(partition_of(group, count))
    found = client.run(open_transactions(client.view, now_ms(), [place])).found
    if not found:
        return {}
    return _read(client, group, place, {one.producer.producer_id: one for one in found})


def _read(
    client: Client, group: str, place: TopicPartition, by_producer: Mapping[int, OpenTransaction]
) -> dict[TopicPartition, Pending]:
    """From the first open transaction to the end of the log."""
    first = min(one.start for one in by_producer.values())
    end = ends_of(client, [place])[place].end
    consumer = Consumer(client, ConsumerSettings())
    consumer.assign({place: Offset(first)})
    until = Instant(client.network.now() + READ_NS_MAX)
    pending: dict[TopicPartition, Pending] = {}
    while consumer.position(place) < end and client.network.now() < until:
        fetched = consumer.poll(until)
        if fetched is None:
            break
        for header, batch in iterate_batches(fetched.view):
            one = by_producer.get(header.producer_id)
            if one is not None and not header.is_control and header.base_offset >= one.start:
                pending.update(_commits(group, one, batch))
            fetched.position = Offset(header.next_offset)
        consumer.consumed(fetched)
    return pending


def _commits(
    group: str, one: OpenTransaction, batch: memoryview
) -> Iterator[tuple[TopicPartition, Pending]]:
    known = one.transaction
    for record in iterate_records(batch):
        said = read(record.key or b"", record.value)
        if isinstance(said, OffsetRecord) and said.group == group and said.value is not None:
            place = said.topic, Partition(said.partition)
            name = None if known is None else known.transactional_id
            yield place, Pending(said.value.offset, one.producer.producer_id, name)
