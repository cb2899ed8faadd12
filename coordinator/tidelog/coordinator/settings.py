"""What the controller needs to know of the settings, read once at its start."""

from collections.abc import Mapping

from msgspec import Struct, field

from tidelog.node.metadata.image import MetadataImage
from tidelog.node.origins import Layers
from tidelog.node.settings import BROKER

REPLICATION_FACTOR_MAX = 1
"""One replica a partition, until replication is there."""


class ControllerSettings(Struct, frozen=True):
    partitions_default: int = 1
    replication_factor_default: int = 1
    replication_factor_max: int = REPLICATION_FACTOR_MAX
    delete_enabled: bool = True
    broker: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that stand in where a topic says nothing."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ControllerSettings":
        """Out of what the supervisor hands down, already checked."""
        return cls(
            partitions_default=BROKER.read(given, "num.partitions"),
            replication_factor_default=BROKER.read(given, "default.replication.factor"),
            delete_enabled=BROKER.read(given, "delete.topic.enable"),
            broker={name: value for name, value in given.items() if name in BROKER},
        )

    def layers(self, image: MetadataImage) -> Layers:
        """What stands behind a topic's own settings: no broker's own, so that all agree."""
        return Layers(self.broker, image.broker_configs.get("", {}))
