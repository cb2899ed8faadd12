"""Replicas that catch up, held to a rate, as Kafka's settings say. No I/O.

A topic names replicas: `leader.replication.throttled.replicas` by their leaders, and
`follower.replication.throttled.replicas` by themselves. Brokers say how fast: what one sends to the
named is held to its `leader.replication.throttled.rate`, what one is sent to its
`follower.replication.throttled.rate`. Who is in sync is never held, and what it is sent counts for
nothing: a rate that is less than what producers write must not put anybody out of the ISR.

Leaders push here, so they keep their followers' rates as well: all who lead something that is held
for a follower have an equal share of its rate. Each knows from the metadata how many they are.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, BrokerId, Offset
from tidelog.kernel.instant import Instant, s
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.settings import BROKER

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
SAVED_SHARE: Final = 8
"""Of what may go in a second: so much is saved up while nothing goes, and goes at one time."""
_EVERY: Final = frozenset({(-1, -1)})
_Pairs = frozenset[tuple[int, int]]


class Throttled(Struct, frozen=True):
    """Which replicas of a topic are held to a rate, as partition and broker."""

    led: _Pairs
    following: _Pairs

    def leads(self, partition: int, broker: BrokerId) -> bool:
        """Whether what this leader sends is held to its rate."""
        return _has(self.led, partition, broker)

    def follows(self, partition: int, broker: BrokerId) -> bool:
        """Whether what this follower is sent is held to its rate."""
        return _has(self.following, partition, broker)


def throttled_of(topic: Mapping[str, str]) -> Throttled | None:
    """By what a topic sets itself; None where it holds nobody."""
    led, following = (_pairs(topic.get(one, "")) for one in (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    return Throttled(led, following) if led or following else None


def _pairs(text: str) -> _Pairs:
    if text.strip() == "*":
        return _EVERY
    pairs = [part.split(":") for part in text.split(",") if part.strip()]
    return frozenset((int(partition), int(broker)) for partition, broker in pairs)


def _has(pairs: _Pairs, partition: int, broker: BrokerId) -> bool:
    return pairs is _EVERY or (partition, broker) in pairs


class Allowance:
    """Bytes that may go as time goes on. It may be overdrawn by one chunk, and is closed then until
    that is paid.

    Invariant: in any time `t` no more than `rate * t` goes, and two of the shares that are saved:
    one at its start, one overdrawn at its end. A batch larger than a share is not cut.
    """

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, now: Instant, rate: int) -> None:
        self._rate = rate
        self._left = 0
        """What may go now; less than nothing where it is overdrawn. In bytes of 1/1e9."""
        self._at = now

    @property
    def chunk(self) -> int:
        """No more may go at one time, but for a whole batch."""
        return max(1, self._rate // SAVED_SHARE)

    def change(self, now: Instant, rate: int) -> None:
        """Another rate from now on."""
        self._settle(now)
        self._rate = rate

    def is_open(self, now: Instant) -> bool:
        self._settle(now)
        return self._left >= 0 < self._rate

    def take(self, now: Instant, size: int) -> None:
        """So many bytes went."""
        self._settle(now)
        self._left -= size * s(1)

    def _settle(self, now: Instant) -> None:
        most = self._rate * s(1) // SAVED_SHARE
        self._left = min(most, self._left + self._rate * (now - self._at))
        self._at = now


def are_open(now: Instant, allowances: Iterable[Allowance]) -> bool:
    return all(one.is_open(now) for one in allowances)


def take_from(now: Instant, allowances: Iterable[Allowance], size: int) -> None:
    for one in allowances:
        one.take(now, size)


def most_at_one_time(allowances: Iterable[Allowance], most: int) -> int:
    """So many bytes, or as many of them as all of these let go."""
    return min([most, *(one.chunk for one in allowances)])


class Throttle:
    """The allowances of one leader broker: its own, and its share of each follower's."""

    def __init__(self, me: BrokerId, static: Mapping[str, str]) -> None:
        self.image = MetadataImage()
        self._me = me
        self._static = static
        """What all brokers were started with."""
        self._kept: dict[BrokerId, Allowance] = {}
        """Our own as a leader is under our own id: nobody follows itself."""
        self._leaders: dict[BrokerId, int] = {}
        """How many brokers lead something that is held for this one."""
        self._counted = NO_OFFSET
        """For the image as of there."""

    def of(
        self, now: Instant, throttled: Throttled, partition: int, peer: BrokerId
    ) -> list[Allowance]:
        """All that must be open for this follower of a partition that is led here."""
        found = []
        if throttled.leads(partition, self._me):
            found.append(self._allowance(now, self._me, self._rate(LEADER_RATE, self._me)))
        if throttled.follows(partition, peer):
            rate = self._rate(FOLLOWER_RATE, peer) // self._sharers(peer)
            found.append(self._allowance(now, peer, rate))
        return found

    def _allowance(self, now: Instant, whose: BrokerId, rate: int) -> Allowance:
        kept = self._kept.get(whose)
        if kept is None:
            kept = self._kept[whose] = Allowance(now, rate)
        kept.change(now, rate)
        return kept

    def _rate(self, name: str, broker: BrokerId) -> int:
        of_brokers = self.image.broker_configs
        for given in (of_brokers.get(str(broker), {}), of_brokers.get("", {}), self._static):
            if name in given:
                rate: int = BROKER.read(given, name)
                return rate
        default: int = BROKER.read({}, name)
        return default

    def _sharers(self, peer: BrokerId) -> int:
        if self._counted != self.image.offset:
            self._counted = Offset(self.image.offset)
            self._leaders.clear()
        found = self._leaders.get(peer)
        if found is None:
            found = self._leaders[peer] = max(1, len(_leaders_of(self.image, peer)))
        return found


def _leaders_of(image: MetadataImage, peer: BrokerId) -> set[BrokerId]:
    """Who leads something that this broker is not in sync with, and is held to its rate for."""
    found = set()
    for topic in image.topics.values():
        text = topic.configs.get(FOLLOWER_REPLICAS)
        pairs = _pairs(text) if text else frozenset()
        for partition, view in enumerate(topic.partitions) if pairs else ():
            is_behind = peer in view.replicas and peer not in view.isr
            if is_behind and view.leader != NO_LEADER and _has(pairs, partition, peer):
                found.add(view.leader)
    return found
