"""What other settings mean for partitions that are there."""

from collections.abc import Iterable, Iterator

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.elections import Rules
from tidelog.coordinator.settings import ControllerSettings, rules_of
from tidelog.node.metadata.image import MetadataImage, TopicView, set_config
from tidelog.wire.metadata_records import (
    ConfigChanged,
    MetadataRecord,
    PartitionChanged,
    ResourceKind,
)


def effects_of(
    image: MetadataImage, settings: ControllerSettings, records: Iterable[MetadataRecord]
) -> Iterator[PartitionChanged]:
    """To be written with these records, as one: where another number of replicas must be in sync,
    nobody is eligible for having been so before."""
    changes = [one for one in records if isinstance(one, ConfigChanged)]
    if not any(one.name == "min.insync.replicas" for one in changes):
        return
    before = settings.rules(image)
    given = _given_after(image, settings, changes)
    for topic in image.topics.values():
        if _rules_after(topic, changes, given).min_in_sync != before(topic).min_in_sync:
            yield from _forgotten(topic)


def _forgotten(topic: TopicView) -> Iterator[PartitionChanged]:
    for partition, view in enumerate(topic.partitions):
        changed = elections.eligible_forgotten(view)
        if changed is not None:
            yield PartitionChanged(topic.id, partition, changed)


def _given_after(
    image: MetadataImage, settings: ControllerSettings, changes: Iterable[ConfigChanged]
) -> dict[str, str]:
    """What stands behind the topics' own settings."""
    brokers = dict(image.broker_configs.get("", {}))
    for one in changes:
        if one.kind is ResourceKind.BROKER and not one.resource:
            set_config(brokers, one)
    return {**settings.broker, **brokers}


def _rules_after(
    topic: TopicView, changes: Iterable[ConfigChanged], given: dict[str, str]
) -> Rules:
    configs = dict(topic.configs)
    for one in changes:
        if one.kind is ResourceKind.TOPIC and one.resource == topic.name:
            set_config(configs, one)
    return rules_of(configs, given)
