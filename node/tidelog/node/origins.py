"""Where the value of a setting comes from: every place that says something, the strongest first.

Changed at run time for one broker wins over changed for all, which wins over what a broker was
started with; the default comes last. A topic's own value wins over all of them.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from msgspec import Struct

from tidelog.node.settings import BROKER, SYNONYMS, topic_text


class Source(IntEnum):
    """Kafka's numbers, as DescribeConfigs tells them."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Origin(NamedTuple):
    """One place, and what it says."""

    name: str
    value: str
    source: Source


class Explained(NamedTuple):
    """A setting in force, and every place that says something of it."""

    value: str | None
    """None where nothing is set and nothing is the default."""
    origins: Sequence[Origin]

    @property
    def source(self) -> Source:
        return self.origins[0].source if self.origins else Source.DEFAULT


_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    one.name: tuple(other.name for other in family)
    for family in SYNONYMS.values()
    if len(family) > 1
    for one in family
}
"""Settings of a broker that stand in for each other, as log.retention.ms and .hours."""


class Layers(Struct, frozen=True):
    """One broker's settings by where they were given."""

    static: Mapping[str, str]
    cluster: Mapping[str, str] = {}
    """Changed at run time, for every broker."""
    own: Mapping[str, str] = {}
    """Changed at run time, for this one."""

    def effective(self) -> dict[str, str]:
        """What is given at all, the strongest of each name."""
        return {**self.static, **self.cluster, **self.own}

    def explain(self, name: str) -> Explained:
        """A setting of this broker."""
        row = BROKER.row(name)
        given = self.effective().get(name)
        value = (None if row.unset else row.default) if given is None else given
        return Explained(value, _from(name, self.origins(name)))

    def origins(self, name: str) -> list[Origin]:
        """All that is said of a setting, or of one that stands in for it."""
        family = _FAMILIES.get(name, (name,))
        defaults = {one: row.default for one in family if not (row := BROKER.row(one)).unset}
        places = (
            (self.own, Source.DYNAMIC_BROKER),
            (self.cluster, Source.DYNAMIC_DEFAULT_BROKER),
            (self.static, Source.STATIC_BROKER),
            (defaults, Source.DEFAULT),
        )
        return [
            Origin(one, values[one], source)
            for values, source in places
            for one in family
            if one in values
        ]


class TopicSettings:
    """What topics have on a broker with these settings."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._given = layers.effective()
        self._inherited: dict[str, Explained] = {}

    def explain(self, name: str, own: Mapping[str, str]) -> Explained:
        """One setting of a topic that sets these itself."""
        inherited = self._inherited.get(name)
        if inherited is None:
            inherited = self._inherited[name] = self._inherit(name)
        if name not in own:
            return inherited
        mine = Origin(name, own[name], Source.TOPIC)
        return Explained(mine.value, [mine, *inherited.origins])

    def _inherit(self, name: str) -> Explained:
        value = topic_text(name, {}, self._given)
        synonyms = SYNONYMS.get(name)
        if synonyms is None:
            return Explained(value, [])
        said = self._layers.origins(synonyms[0].name)
        if all(one.source is Source.DEFAULT for one in said):
            # Kafka explains a topic's default by none of the broker's weaker settings.
            said = _from(synonyms[0].name, said)
        return Explained(value, said)


def _from(name: str, said: Sequence[Origin]) -> list[Origin]:
    """What is said of others before it is left out, as Kafka does."""
    return list(dropwhile(lambda one: one.name != name, said))
