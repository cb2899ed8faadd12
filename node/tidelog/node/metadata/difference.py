"""What lies between two images, for whoever had one and is handed the other."""

from collections.abc import Iterator

from tidelog.kernel.ids import BrokerId
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.wire.metadata_records import ResourceKind


def difference(old: MetadataImage, new: MetadataImage) -> Changes:
    """The changes that make the new image of the old one; topics are the new image's, but for
    deleted ones."""
    created = [topic for topic in new.topics.values() if topic.id not in old.topics]
    return Changes(
        created=created,
        deleted=[topic for topic in old.topics.values() if topic.id not in new.topics],
        partitions=[
            (topic, partition)
            for topic in new.topics.values()
            for partition in _changed_partitions(old.topics.get(topic.id), topic)
        ],
        configs=[*_topic_configs(old, new), *_other_configs(old, new)],
        brokers=_changed_brokers(old, new),
    )


def _changed_partitions(old: TopicView | None, new: TopicView) -> Iterator[int]:
    known = old.partitions if old else []
    for partition, view in enumerate(new.partitions):
        if partition >= len(known) or known[partition] != view:
            yield partition


def _topic_configs(old: MetadataImage, new: MetadataImage) -> Iterator[tuple[ResourceKind, str]]:
    for topic in new.topics.values():
        known = old.topics.get(topic.id)
        if topic.configs != (known.configs if known else {}):
            yield ResourceKind.TOPIC, topic.name


def _other_configs(old: MetadataImage, new: MetadataImage) -> Iterator[tuple[ResourceKind, str]]:
    for kind in (ResourceKind.BROKER, *new.other_configs):
        before, now = old.configs_of(kind), new.configs_of(kind)
        for resource in sorted({*before, *now}):
            if before.get(resource) != now.get(resource):
                yield kind, resource


def _changed_brokers(old: MetadataImage, new: MetadataImage) -> list[BrokerId]:
    return sorted(
        broker
        for broker in {*old.brokers, *new.brokers}
        if old.brokers.get(broker) != new.brokers.get(broker)
    )
