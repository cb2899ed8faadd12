"""The topics of a broker's image, as groups see them."""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.kernel.ids import Offset, Uuid
from tidelog.node.groups.topics import TopicFacts
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import ResourceKind

_NEVER: Final = Offset(-2)


class ImageTopics:
    """One for all groups of a broker.

    An image moves with every change of an ISR; groups look at all topics anew only when `version`
    moves, which is when one came, went or grew.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._looked_at = _NEVER
        self._facts: tuple[tuple[str, Uuid, int], ...] = ()
        self._version = 0
        self._came: dict[str, tuple[Uuid, int]] = {}
        """By name: which topic it is, and the version that it came with."""

    @property
    def version(self) -> int:
        if self._looked_at != self._image.offset:
            self._looked_at = self._image.offset
            facts = tuple(
                (name, topic.id, len(topic.partitions)) for name, topic in self._image.names.items()
            )
            if facts != self._facts:
                self._facts = facts
                self._version += 1
                self._came = {name: self._coming(name, topic) for name, topic, _ in facts}
        return self._version

    def _coming(self, name: str, topic: Uuid) -> tuple[Uuid, int]:
        known = self._came.get(name)
        return known if known is not None and known[0] == topic else (topic, self._version)

    def names(self) -> Iterable[str]:
        return self._image.names

    def came(self, name: str) -> int:
        latest = self.version
        return self._came[name][1] if name in self._came else latest

    def of_name(self, name: str) -> TopicFacts | None:
        topic = self._image.names.get(name)
        return None if topic is None else TopicFacts(topic.id, len(topic.partitions))

    def configs_of(self, group: str) -> Mapping[str, str]:
        return self._image.other_configs[ResourceKind.GROUP].get(group, {})

    def name_of(self, topic: Uuid) -> str | None:
        view = self._image.topics.get(topic)
        return None if view is None else view.name
