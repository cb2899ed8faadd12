"""Asks a cluster what the sentences about transactions are made of."""

import time
from collections.abc import Collection, Iterable

from tidelog.clients.admin.offsets import END, peek_offsets
from tidelog.clients.admin.open_transactions import open_transactions
from tidelog.clients.admin.transactions import (
    DescribedTransaction,
    describe_transactions,
    list_transactions,
)
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.tools.output import not_found
from tidelog.tools.transaction_reasons import Ends, Readers, Seen

_LOOKS = 3


def now_ms() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)


def known_transactions(client: Client, names: Collection[str]) -> list[DescribedTransaction]:
    """Each as its coordinator knows it; the command ends where there is none of a name."""
    found = client.run(describe_transactions(client.view, [one for one in names if one]))
    known = []
    for name in dict.fromkeys(names):
        one = found.get(name)
        if one is None:
            listed = client.run(list_transactions(client.view, now_ms()))
            there = [one.transactional_id for one in listed]
            raise not_found("transactional id", name, there, see="tidelog txn list")
        known.append(one)
    return known


def all_partitions(client: Client) -> list[TopicPartition]:
    client.run(refresh(client.view, None))
    return [
        (name, Partition(number))
        for name, topic in sorted(client.view.topics.items())
        for number in topic.partitions
    ]


def see(client: Client, known: DescribedTransaction) -> Seen:
    """What its producer has open, anywhere in the cluster."""
    partitions = all_partitions(client)
    open_there = client.run(open_transactions(client.view, now_ms(), partitions))
    of_it = [one for one in open_there.found if one.producer.producer_id == known.producer_id]
    away = [one for one in known.partitions if one in open_there.unseen or one not in partitions]
    return Seen(known, of_it, away, ends_of(client, {one.partition for one in of_it}))


def see_readers(
    client: Client, partition: TopicPartition, timeout_ns: int | None = None
) -> Readers | None:
    """What a partition's readers wait for; None where its leader does not tell.

    The two halves are asked for one after the other: again where they do not fit.
    """
    readers: Readers | None = None
    for _ in range(_LOOKS):
        plan = open_transactions(client.view, now_ms(), [partition])
        found = client.run(plan, timeout_ns).found
        ends = ends_of(client, [partition], timeout_ns).get(partition)
        if ends is None:
            return None
        readers = Readers(partition, ends, found)
        if not ends.held or any(one.start <= ends.stable for one in found):
            break
    return readers


def ends_of(
    client: Client, partitions: Iterable[TopicPartition], timeout_ns: int | None = None
) -> dict[TopicPartition, Ends]:
    """Of those whose leaders tell at once."""
    wanted = dict.fromkeys(sorted(partitions), END)
    stable = client.run(peek_offsets(client.view, wanted, Isolation.READ_COMMITTED), timeout_ns)
    ends = client.run(peek_offsets(client.view, wanted), timeout_ns)
    return {one: Ends(stable[one].offset, ends[one].offset) for one in stable.keys() & ends.keys()}
