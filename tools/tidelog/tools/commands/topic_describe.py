"""`tidelog topic describe`: the partitions of topics, all of them or those in some trouble."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import click
from msgspec import Struct

from tidelog.clients.admin.configs import Kind, Resource, describe_configs
from tidelog.clients.admin.describe import eligible_replicas, replica_sizes
from tidelog.clients.admin.offsets import END, START, FoundOffset, peek_offsets
from tidelog.clients.admin.reassignments import Ongoing, list_reassignments
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import PartitionView, TopicView, refresh
from tidelog.clients.failures import UnsupportedError
from tidelog.kernel.ids import Partition, TopicPartition, uuid_text
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    emit_json,
    json_option,
    size,
    table,
)

VERSION = 1
COLUMNS = (
    "TOPIC",
    "PARTITION",
    "LEADER",
    "EPOCH",
    "REPLICAS",
    "ISR",
    "ELR",
    "HIGH WATERMARK",
    "LOG START",
    "SIZE",
)
MOVING = ("ADDING", "REMOVING")
"""Told to people only where replicas are on their way."""
MIN_IN_SYNC = "min.insync.replicas"


class State(Struct, frozen=True):
    """One partition, and what its filters ask of it."""

    view: PartitionView
    ongoing: Ongoing | None
    live: Collection[int]
    min_in_sync: int

    @property
    def is_unavailable(self) -> bool:
        return self.view.leader not in self.live

    @property
    def is_under_replicated(self) -> bool:
        """A replica that is only being added is not missing yet."""
        adding = () if self.ongoing is None else self.ongoing.adding
        return len(self.view.isr) < len(self.view.replicas) - len(adding)

    @property
    def required(self) -> int:
        """More than there are replicas cannot be in sync."""
        return min(self.min_in_sync, len(self.view.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.view.isr) < self.required

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.view.isr) == self.required


Filter = Callable[[State], bool]
FILTERS: Mapping[str, Filter] = {
    "under_replicated": lambda state: state.is_under_replicated,
    "unavailable": lambda state: state.is_unavailable,
    "under_min_isr": lambda state: state.is_under_min_isr,
    "at_min_isr": lambda state: state.is_at_min_isr,
}


@click.command(
    "describe",
    cls=Command,
    examples=(
        "tidelog topic describe orders",
        "tidelog topic describe --unavailable",
        "tidelog topic describe --under-replicated --json",
    ),
)
@click.argument("names", metavar="[NAME…]", nargs=-1, shell_complete=topic_names)
@click.option("--under-replicated", is_flag=True, help="Only where replicas are not in sync.")
@click.option("--unavailable", is_flag=True, help="Only where nobody leads.")
@click.option(
    "--under-min-isr", is_flag=True, help=f"Only where fewer are in sync than {MIN_IN_SYNC}."
)
@click.option("--at-min-isr", is_flag=True, help="Only where one replica less makes acks=all fail.")
@bootstrap_options
@json_option
def describe(target: Target, names: Sequence[str], *, as_json: bool, **wanted: bool) -> None:
    """Show the partitions of topics, of all where none is named.

    Of several filters each must hold.
    """
    filters = [FILTERS[name] for name, given in wanted.items() if given]
    with connected(target) as client:
        topics = _topics_of(client, names)
        facts = _Facts(client, topics, with_settings=bool(filters))
    chosen = [
        (one, [number for number in one.partitions if facts.is_chosen(one, number, filters)])
        for one in topics
    ]
    if filters:
        chosen = [(one, numbers) for one, numbers in chosen if numbers]
    _show(facts, chosen, as_json=as_json)


def _show(facts: "_Facts", chosen: Sequence[tuple[TopicView, list[int]]], *, as_json: bool) -> None:
    if as_json:
        documents = [facts.document(one, numbers) for one, numbers in chosen]
        emit_json({"version": VERSION, "topics": documents})
        return
    moving = any(facts.is_moving(one, number) for one, numbers in chosen for number in numbers)
    rows = [facts.row(one, number) for one, numbers in chosen for number in numbers]
    columns = (*COLUMNS, *MOVING) if moving else COLUMNS
    table([row[: len(columns)] for row in rows], columns)


def _topics_of(client: Client, names: Sequence[str]) -> list[TopicView]:
    """Those that are named; where none is, all."""
    if names:
        return known_topics(client, names)
    client.run(refresh(client.view, None))
    return [client.view.topics[name] for name in sorted(client.view.topics)]


class _Facts:
    """What is asked besides Metadata; what a cluster cannot tell is None."""

    def __init__(self, client: Client, topics: Iterable[TopicView], *, with_settings: bool) -> None:
        self.brokers = frozenset(client.view.brokers)
        names = [one.name for one in topics]
        partitions = [
            (name, Partition(number))
            for name in names
            for number in client.view.topics[name].partitions
        ]
        view = client.view
        self._starts = client.run(peek_offsets(view, dict.fromkeys(partitions, START)))
        self._ends = client.run(peek_offsets(view, dict.fromkeys(partitions, END)))
        self._eligible = client.run(eligible_replicas(names))
        self._sizes = client.run(replica_sizes(view, partitions))
        self._ongoing: dict[TopicPartition, Ongoing] = {}
        with contextlib.suppress(UnsupportedError):
            self._ongoing = client.run(list_reassignments(view, partitions))
        self._min_in_sync = _min_in_sync(client, names) if with_settings else {}

    def is_chosen(self, one: TopicView, number: int, filters: Iterable[Filter]) -> bool:
        state = State(
            one.partitions[number],
            self._ongoing.get((one.name, Partition(number))),
            self.brokers,
            self._min_in_sync.get(one.name, 1),
        )
        return all(holds(state) for holds in filters)

    def is_moving(self, one: TopicView, number: int) -> bool:
        return (one.name, Partition(number)) in self._ongoing

    def document(self, one: TopicView, numbers: Iterable[int]) -> dict[str, object]:
        return {
            "name": one.name,
            "topic_id": uuid_text(one.topic_id) if one.has_id else None,
            "internal": one.internal,
            "partitions": [self._partition(one, number) for number in numbers],
        }

    def _partition(self, one: TopicView, number: int) -> dict[str, object]:
        view = one.partitions[number]
        key = (one.name, Partition(number))
        eligible = self._eligible.get(key)
        ongoing = self._ongoing.get(key)
        return {
            "partition": number,
            "leader": view.leader if view.leader in self.brokers else None,
            "leader_epoch": view.epoch if view.epoch >= 0 else None,
            "replicas": list(view.replicas),
            "isr": list(view.isr),
            "elr": None if eligible is None else list(eligible),
            "offline": list(view.offline),
            "adding": [] if ongoing is None else list(ongoing.adding),
            "removing": [] if ongoing is None else list(ongoing.removing),
            "high_watermark": _offset(self._ends.get(key)),
            "log_start": _offset(self._starts.get(key)),
            "size_bytes": self._size(key, view),
        }

    def row(self, one: TopicView, number: int) -> tuple[object, ...]:
        facts = self._partition(one, number)
        byte_count = facts["size_bytes"]
        return (
            one.name,
            number,
            *(facts[name] for name in ("leader", "leader_epoch", "replicas", "isr", "elr")),
            *(facts[name] for name in ("high_watermark", "log_start")),
            size(byte_count) if isinstance(byte_count, int) else None,
            facts["adding"],
            facts["removing"],
        )

    def _size(self, key: TopicPartition, view: PartitionView) -> int | None:
        """The leader's; of a partition without one, the largest that is left."""
        of_leader = self._sizes.get((key, view.leader))
        if of_leader is not None:
            return of_leader
        known = (self._sizes.get((key, broker)) for broker in view.replicas)
        return max((one for one in known if one is not None), default=None)


def _offset(found: FoundOffset | None) -> int | None:
    return None if found is None else found.offset


def _min_in_sync(client: Client, names: Iterable[str]) -> dict[str, int]:
    """By topic, how many replicas must be in sync for acks=all."""
    found = client.run(describe_configs([Resource(Kind.TOPIC, name) for name in names]))
    return {
        resource.name: int(entry.value)
        for resource, entries in found.items()
        for entry in entries
        if entry.name == MIN_IN_SYNC and entry.value
    }
