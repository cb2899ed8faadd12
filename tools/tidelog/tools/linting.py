"""Asks a cluster for what the rules of `lint.py` need, and applies them."""

from collections.abc import Iterable, Sequence

from tidelog.clients.admin.configs import Entry, Kind, Origin, Resource, describe_configs
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.tools.lint import Finding, Subject, check_broker, check_group, check_topic

_SET = frozenset(Origin) - {Origin.DEFAULT, Origin.UNKNOWN}
_CHECKS = {Kind.TOPIC: check_topic, Kind.BROKER: check_broker, Kind.GROUP: check_group}


def findings(client: Client, resources: Sequence[Resource] | None = None) -> list[Finding]:
    """What is wrong with these; None: with all topics and all brokers."""
    client.run(refresh(client.view, None))
    if resources is None:
        resources = [
            *(Resource(Kind.TOPIC, name) for name in sorted(client.view.topics)),
            *(Resource(Kind.BROKER, str(broker)) for broker in sorted(client.view.brokers)),
        ]
    described = client.run(describe_configs(resources))
    return [found for one in resources for found in _check(client, one, described.get(one, []))]


def _check(client: Client, resource: Resource, entries: Iterable[Entry]) -> list[Finding]:
    entries = list(entries)
    # What a topic or a group inherits is the broker's to answer for.
    is_broker = resource.kind is Kind.BROKER
    chosen = _SET if is_broker else {resource.own_origin}
    subject = Subject(
        name=f"{resource.kind.name.lower()} {resource.name}",
        values={one.name: one.value for one in entries if one.value is not None},
        chosen=frozenset(one.name for one in entries if one.origin in chosen),
        documentation={one.name: one.documentation for one in entries},
        replicas=_replicas(client, resource.name) if resource.kind is Kind.TOPIC else 1,
        brokers=len(client.view.brokers),
    )
    return _CHECKS[resource.kind](subject)


def _replicas(client: Client, name: str) -> int:
    topic = client.view.topics.get(name)
    if topic is None:
        return 1
    return min((len(one.replicas) for one in topic.partitions.values()), default=1)
