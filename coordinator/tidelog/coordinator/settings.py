"""What the coordinators need to know of the settings, read once at their start."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from tidelog.coordinator.controller.elections import Rules
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.node.flush_settings import rules_for
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.node.origins import Layers
from tidelog.node.settings import BROKER, topic_reader

_REPLICATION_FACTOR: Final = "default.replication.factor"


RulesOf = Callable[[TopicView], Rules]


class ControllerSettings(Struct, frozen=True):
    partitions_default: int = 1
    delete_enabled: bool = True
    rebalance_after_s: int | None = 300
    """How often preferred replicas get back what they shall lead; None: never by itself."""
    broker: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that stand in where a topic says nothing."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ControllerSettings":
        """Out of what the supervisor hands down, already checked."""
        return cls(
            partitions_default=BROKER.read(given, "num.partitions"),
            rebalance_after_s=(
                BROKER.read(given, "leader.imbalance.check.interval.seconds")
                if BROKER.read(given, "auto.leader.rebalance.enable")
                else None
            ),
            delete_enabled=BROKER.read(given, "delete.topic.enable"),
            broker={name: value for name, value in given.items() if name in BROKER},
        )

    def replicas_by_default(self, image: MetadataImage) -> int:
        """As told; where nobody says anything, no more than there are brokers."""
        given = self.layers(image).effective()
        factor: int = BROKER.read(given, _REPLICATION_FACTOR)
        return factor if _REPLICATION_FACTOR in given else min(factor, len(image.brokers))

    def rules(self, image: MetadataImage) -> RulesOf:
        """Who may lead each topic, as its settings are now."""
        given = self.layers(image).effective()
        inherited = rules_of({}, given)

        def of(topic: TopicView) -> Rules:
            return rules_of(topic.configs, given) if topic.configs else inherited

        return of

    def flush_rules(self, image: MetadataImage, topic: TopicView) -> FlushRules:
        """When its brokers force it to disk, but for what a broker has of its own."""
        return rules_for(topic.configs, self.layers(image).effective())

    def layers(self, image: MetadataImage) -> Layers:
        """What stands behind a topic's own settings: no broker's own, so that all agree."""
        return Layers(self.broker, image.broker_configs.get("", {}))


def rules_of(topic: Mapping[str, str], broker: Mapping[str, str]) -> Rules:
    """What a topic that sets this itself says of its leaders, on brokers with these settings."""
    read = topic_reader(topic, broker)
    return Rules(
        min_in_sync=read("min.insync.replicas"), unclean=read("unclean.leader.election.enable")
    )


def transaction_settings(given: Mapping[str, str]) -> TransactionSettings:
    """Out of what the supervisor hands down, already checked."""
    return TransactionSettings(
        timeout_ms_max=BROKER.read(given, "transaction.max.timeout.ms"),
        id_expiration_ms=BROKER.read(given, "transactional.id.expiration.ms"),
        cleanup_interval_ms=BROKER.read(
            given, "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )
