"""Lives of the transaction coordinator's process around its machine, and their connections."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.machines.toy_brokers import ToyBroker
from tidelog.coordinator.transactions.events import (
    BrokerDown,
    BrokerUp,
    Effect,
    Event,
    IdsGiven,
    ImageChanged,
    Received,
    SendTo,
    Stop,
    Tick,
    WantIds,
)
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Epoch, Incarnation, ProducerId
from tidelog.kernel.instant import Instant
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import ProducerIdsAllocated
from tidelog.wire.transactions import (
    FromTransactions,
    Hello,
    ToTransactions,
    decode_from_transactions,
    decode_to_transactions,
    encode,
)

if TYPE_CHECKING:
    from harness.machines.transaction_world import World

BLOCK = 600


class Connection:
    """Between a broker and a coordinator, both ways in order."""

    def __init__(self, world: "World", broker: ToyBroker, process: "Process") -> None:
        self.world = world
        self.broker = broker
        self.process = process
        self.incarnation = broker.incarnation
        self.is_broken = False
        self._free = {"up": Instant(0), "down": Instant(0)}

    def up(self, message: ToTransactions) -> None:
        frame = encode(message)
        self._carry("up", lambda: self.process.hears(self, decode_to_transactions(frame)))

    def down(self, message: FromTransactions) -> None:
        frame = encode(message)
        self._carry("down", lambda: self.broker.hears(decode_from_transactions(frame)))

    def _carry(self, way: str, arrive: Callable[[], None]) -> None:
        at = max(self._free[way], Instant(self.world.now + self.world.delay()))
        self._free[way] = at

        def arrives() -> None:
            if not self.is_broken and self.broker.alive and self.process.alive:
                arrive()

        self.world.timeline.at(at, arrives)


class Process:
    """One life of the coordinator: its machine, its image, its clock; it may stand still."""

    def __init__(self, world: "World", incarnation: Incarnation, epoch: Epoch) -> None:
        self.world = world
        self.incarnation = incarnation
        self.epoch = epoch
        self.alive = True
        self.stopped: str | None = None
        self.image = MetadataImage()
        self.machine: Transactions | None = None
        self.connections: dict[BrokerId, Connection] = {}
        self._held: list[Callable[[], None]] | None = None
        """What it will do when it goes on."""
        self._missed = 0
        """Records of the metadata that it has not heard of meanwhile."""
        self._alarm: Instant | None = None

    def begin(self) -> None:
        """Its image names it: it may speak."""
        if self.alive and self.machine is None and self.image.transactions_epoch >= self.epoch:
            self.machine = Transactions(
                self.image, self.incarnation, self.epoch, self.world.settings, self.world.wall_ms
            )
            self._perform(self.machine.start(self.world.now))
            self.world.served()

    def hears(self, connection: Connection, message: ToTransactions) -> None:
        if isinstance(message, Hello):
            self.connections[message.broker] = connection
            self.step(BrokerUp(message.broker, message.incarnation, message.session))
        elif self.connections.get(connection.broker.id) is connection:
            self.step(Received(connection.broker.id, message))

    def step(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(lambda: self.step(event))
        elif self.alive and self.machine is not None:
            self._perform(self.machine.step(self.world.now, event))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(broker, message):
                    self.world.sent(self, broker, message)
                    self._send(broker, message)
                case WantIds():
                    self.world.later(self._give_ids)
                case Stop(reason):
                    self.stopped = reason
                    self.world.kill_coordinator(self)
                case _:
                    self.world.happened.append((self.epoch, effect))
        self._set_alarm()

    def _send(self, broker: BrokerId, message: FromTransactions) -> None:
        connection = self.connections.get(broker)
        if connection is None or not self.alive:
            return
        if connection.is_broken:
            self.world.later(lambda: self._lost(connection))
        else:
            connection.down(message)

    def _lost(self, connection: Connection) -> None:
        """Nobody is there."""
        broker = connection.broker
        if self.connections.get(broker.id) is connection:
            del self.connections[broker.id]
            self.step(BrokerDown(broker.id, connection.incarnation))

    def _give_ids(self) -> None:
        first = ProducerId(self.world.image.producer_id_next + 1)
        following = ProducerId(first + BLOCK)
        self.world.decide(ProducerIdsAllocated(TRANSACTIONS_ID, following))
        self.world.later(lambda: self.step(IdsGiven(first, BLOCK)))

    def _set_alarm(self) -> None:
        due = None if self.machine is None else self.machine.deadline()
        if due is None or (self._alarm is not None and self._alarm <= due):
            return
        self._alarm = due

        def ring() -> None:
            if self._alarm == due:
                self._alarm = None
                self.step(Tick())

        self.world.timeline.at(due, ring)

    def told(self, count: int) -> None:
        """The metadata has so many records."""
        if self._held is not None:
            self._missed = max(self._missed, count)
        elif self.world.bring_up_to_date(self.image, count):
            if self.machine is None:
                self.begin()
            else:
                self.step(ImageChanged())

    def stand_still(self) -> None:
        """As a process that is stopped: it hears nothing, and nothing is lost."""
        self._held = self._held or []

    def go_on(self) -> None:
        """It takes what has come as if no time had passed; of the metadata it hears last."""
        held, self._held = self._held or [], None
        for one in held:
            one()
        missed, self._missed = self._missed, 0
        self.world.later(lambda: self.told(missed))
