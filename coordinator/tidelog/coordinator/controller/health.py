"""How many partitions lack something, as `status` shows it."""

from msgspec import Struct

from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import NO_LEADER
from tidelog.node.metadata.image import MetadataImage


class Health(Struct, frozen=True):
    offline: int = 0
    """Nobody leads them."""
    under_replicated: int = 0
    """Fewer are in sync than there are replicas that are not just being added."""
    under_min_isr: int = 0
    """Fewer are in sync than acks=all asks for: such produces are refused."""


def health(image: MetadataImage, rules: RulesOf) -> Health:
    offline = under_replicated = under_min_isr = 0
    for topic in image.topics.values():
        least = rules(topic).min_in_sync
        for view in topic.partitions:
            in_sync, factor = len(view.isr), view.factor
            offline += view.leader == NO_LEADER
            under_replicated += in_sync < factor
            under_min_isr += in_sync < min(least, factor)
    return Health(offline, under_replicated, under_min_isr)
