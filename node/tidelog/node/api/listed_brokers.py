"""Which brokers clients are told of: those that live, and for a while those that have left.

A client drops a broker that is not listed any more, and librdkafka drops with it the partitions
that the same answer moves elsewhere: it finds them again a second later. So one that has left stays
in the list until its clients have moved. (Kafka learns of a death after 9 s, and lists it as long.)
"""

from collections.abc import Iterable
from typing import Final

from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.metadata.image import BrokerView, MetadataImage

LISTED_MS: Final = 10_000
"""After it left. It leads nothing then, so nobody connects to it for more than a try."""


class ListedBrokers:
    """Invariant: who stands in `_left` was alive once, as this broker saw it, and is not now."""

    def __init__(self) -> None:
        self._alive: set[BrokerId] = set()
        self._left: dict[BrokerId, Instant] = {}

    def follow(self, now: Instant, image: MetadataImage, changed: Iterable[BrokerId]) -> None:
        """The image says something new of these brokers."""
        for broker in changed:
            if image.is_alive(broker):
                self._alive.add(broker)
                self._left.pop(broker, None)
            elif broker in self._alive:
                self._alive.discard(broker)
                self._left[broker] = now

    def at(self, now: Instant, image: MetadataImage) -> list[BrokerView]:
        """In order of their ids."""
        return [
            view
            for broker, view in sorted(image.brokers.items())
            if not view.fenced or self._has_just_left(now, broker)
        ]

    def _has_just_left(self, now: Instant, broker: BrokerId) -> bool:
        left = self._left.get(broker)
        return left is not None and now - left < ms(LISTED_MS)
