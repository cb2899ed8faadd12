"""What the controller needs to know of the settings, read once at its start."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from tidelog.node.metadata.image import MetadataImage
from tidelog.node.origins import Layers
from tidelog.node.settings import BROKER

_REPLICATION_FACTOR: Final = "default.replication.factor"


class ControllerSettings(Struct, frozen=True):
    partitions_default: int = 1
    delete_enabled: bool = True
    broker: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that stand in where a topic says nothing."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ControllerSettings":
        """Out of what the supervisor hands down, already checked."""
        return cls(
            partitions_default=BROKER.read(given, "num.partitions"),
            delete_enabled=BROKER.read(given, "delete.topic.enable"),
            broker={name: value for name, value in given.items() if name in BROKER},
        )

    def replicas_by_default(self, image: MetadataImage) -> int:
        """As told; where nobody says anything, no more than there are brokers."""
        given = self.layers(image).effective()
        factor: int = BROKER.read(given, _REPLICATION_FACTOR)
        return factor if _REPLICATION_FACTOR in given else min(factor, len(image.brokers))

    def layers(self, image: MetadataImage) -> Layers:
        """What stands behind a topic's own settings: no broker's own, so that all agree."""
        return Layers(self.broker, image.broker_configs.get("", {}))
