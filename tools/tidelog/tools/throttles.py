"""The settings by which a cluster moves replicas slowly, as Kafka's own tool sets and removes them.

A rate for each broker that takes part, and for each topic the replicas it holds for: those that
give, at their leader, and those that get, at the follower. Replicas that are in no list stay as
quick as they were.
"""

import contextlib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tidelog.clients.admin.configs import (
    Change,
    Entry,
    Kind,
    Operation,
    Resource,
    alter_configs,
    describe_configs,
    wait_for_configs,
)
from tidelog.clients.admin.reassignments import Ongoing
from tidelog.clients.client import Client
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import s

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_RATES, _LISTS = (LEADER_RATE, FOLLOWER_RATE), (LEADER_REPLICAS, FOLLOWER_REPLICAS)
_ANSWER_NS = s(5)
"""How long one broker, or one topic, may take."""


class Move(Struct, frozen=True):
    """One partition: who has it, and who gets it."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def moves(
    current: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, Ongoing],
    targets: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """What is under way and what is wished for; a wish for what is under way begins where that
    began."""
    found = {
        partition: Move(tuple(o for o in one.replicas if o not in one.adding), one.adding)
        for partition, one in ongoing.items()
    }
    for partition, replicas in targets.items():
        known = found.get(partition)
        sources = tuple(current[partition]) if known is None else known.sources
        found[partition] = Move(sources, tuple(one for one in replicas if one not in sources))
    return found


def settings_of(moving: Mapping[TopicPartition, Move], rate: int) -> dict[Resource, list[Change]]:
    """What is to be set: topics first, for a rate without lists holds nothing back."""
    lists: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, partition), move in sorted(moving.items()):
        leaders, followers = lists.setdefault(topic, ([], []))
        leaders += [f"{partition}:{broker}" for broker in sorted(move.sources)]
        followers += [f"{partition}:{broker}" for broker in sorted(move.destinations)]
    wanted = {
        Resource(Kind.TOPIC, topic): _set(_LISTS, [",".join(one) for one in both])
        for topic, both in lists.items()
    }
    brokers = {one for move in moving.values() for one in (*move.sources, *move.destinations)}
    for broker in sorted(brokers):
        wanted[Resource(Kind.BROKER, str(broker))] = _set(_RATES, [str(rate)] * 2)
    return wanted


def _set(names: Sequence[str], values: Sequence[str]) -> list[Change]:
    return [
        Change(name, Operation.SET, value)
        for name, value in zip(names, values, strict=True)
        if value
    ]


def throttle(client: Client, moving: Mapping[TopicPartition, Move], rate: int) -> None:
    """Returns when it is in force. Who is down is not asked: it moves nothing."""
    for resource, changes in settings_of(moving, rate).items():
        if resource.kind is Kind.TOPIC or int(resource.name) in client.view.brokers:
            _alter(client, resource, changes)


def current_rate(client: Client) -> int | None:
    """The lowest that is set for any broker that answers; None where none is."""
    found = [
        int(entry.value)
        for entries in _of_brokers(client).values()
        for entry in entries
        if entry.name in _RATES and entry.value
    ]
    return min(found, default=None)


def release(client: Client) -> bool:
    """Take back every throttle there is, in topics first: a rate that stays with a broker that is
    down holds nothing back then. Whether there was one."""
    topics = [Resource(Kind.TOPIC, name) for name in client.view.topics]
    found = _own(client.run(describe_configs(topics))) | _of_brokers(client)
    held = {resource: entries for resource, entries in found.items() if entries}
    for resource, entries in held.items():
        _alter(client, resource, [Change(one.name, Operation.DELETE) for one in entries])
    return bool(held)


def _of_brokers(client: Client) -> dict[Resource, list[Entry]]:
    """Each broker is asked for its own; one that does not answer in time is left out."""
    found: dict[Resource, list[Entry]] = {}
    for broker in client.view.brokers:
        resource = Resource(Kind.BROKER, str(broker))
        with contextlib.suppress(ClientError):
            found |= _own(client.run(describe_configs([resource]), _ANSWER_NS))
    return found


def _own(described: Mapping[Resource, Sequence[Entry]]) -> dict[Resource, list[Entry]]:
    """The settings of a throttle that somebody set for these very resources."""
    return {
        resource: [
            one
            for one in entries
            if one.name in {*_RATES, *_LISTS} and one.origin is resource.own_origin
        ]
        for resource, entries in described.items()
    }


def _alter(client: Client, resource: Resource, changes: Sequence[Change]) -> None:
    """Of a broker that goes at this moment it does not matter; a refusal is the command's end."""
    if changes:
        with contextlib.suppress(ClientError):
            client.run(alter_configs(resource, changes), _ANSWER_NS)
            client.run(wait_for_configs(resource, changes), _ANSWER_NS)
