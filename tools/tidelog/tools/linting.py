"""Asks a cluster for what the rules of `lint.py` need, and applies them."""

from collections.abc import Iterable, Sequence

from tidelog.clients.admin.configs import Entry, Kind, Origin, Resource, describe_configs
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.tools.lint import Finding, Subject, check_broker, check_topic


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
    is_topic = resource.kind is Kind.TOPIC
    # What a topic inherits is the broker's to answer for.
    chosen = {Origin.TOPIC} if is_topic else set(Origin) - {Origin.DEFAULT, Origin.UNKNOWN}
    subject = Subject(
        name=f"{resource.kind.name.lower()} {resource.name}",
        values={one.name: one.value for one in entries if one.value is not None},
        chosen=frozenset(one.name for one in entries if one.origin in chosen),
        documentation={one.name: one.documentation for one in entries},
        replicas=_replicas(client, resource.name) if is_topic else 1,
        brokers=len(client.view.brokers),
    )
    return check_topic(subject) if is_topic else check_broker(subject)


def _replicas(client: Client, name: str) -> int:
    topic = client.view.topics.get(name)
    if topic is None:
        return 1
    return min((len(one.replicas) for one in topic.partitions.values()), default=1)
