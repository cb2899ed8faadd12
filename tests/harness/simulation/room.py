"""Whether a simulated broker's disk has room, and what it has others lead: the shell's part."""

from typing import TYPE_CHECKING

from tidelog.kernel.ids import BrokerId, TopicPartition
from tidelog.node.metadata import link
from tidelog.node.replica.room import HAS_ROOM, Room

if TYPE_CHECKING:
    from harness.simulation.broker import Life


class SimulatedRoom:
    """Of one life of a broker."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        has_space = life.storage.has_space
        world = life.world
        self._room = Room(life.replicas, has_space, lambda *what: world.noted(life, *what))
        self._publish()

    def failed(self, key: TopicPartition, failure: Exception) -> None:
        if self._room.failed(self._life.world.now, key, failure):
            self._publish()
            self._ask(key)

    def turn(self) -> None:
        if self._room.full_at != HAS_ROOM:
            self._room.turn(self._life.world.now)
            self._publish()
            self._ask()

    def _publish(self) -> None:
        self._life.world.full_at[self._life.me] = self._room.full_at

    def _ask(self, key: TopicPartition | None = None) -> None:
        life = self._life
        places = self._room.asks(life.world.now, self._has_room, key)
        if places:
            life.link_step(link.NoRoomTold(places))

    def _has_room(self, broker: BrokerId) -> bool:
        life = self._life
        return life.link.image.is_active(broker) and life.world.full_at[broker] == HAS_ROOM
