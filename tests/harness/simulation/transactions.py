"""Transactions in a simulated cluster: each broker's own service, and its way to whoever
coordinates them. Who that is, a test says: it is given to `Ways.begin`; until then nobody does. The
real one is `simulation/transactor.py`'s.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from harness.machines.controllers import CLUSTER
from harness.simulation.alarm import SimulatedAlarm
from harness.simulation.network import Network
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Incarnation
from tidelog.kernel.instant import Instant
from tidelog.node.api.transaction_service import make_service
from tidelog.node.transactions.link import Me
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    FromTransactions,
    ToTransactions,
    decode_from_transactions,
    decode_to_transactions,
    encode,
)

if TYPE_CHECKING:
    from harness.simulation.broker import Life

CONNECT_MS = 0.2


class Coordinator(Protocol):
    """One life of a transaction coordinator, as a test makes it."""

    def heard(self, broker: BrokerId, incarnation: Incarnation, message: ToTransactions) -> None:
        """A broker said this, Hello first."""
        ...

    def parted(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """That broker's connection has ended."""
        ...


class SimulatedTransactions:
    """One broker's side, in one of its lives. What handlers take for the coordinator."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.connection = 0
        self.peer = TRANSACTIONS_ID
        """Whom the connection is with."""
        self._alarm = SimulatedAlarm(life, self._on_alarm)
        self.service = make_service(
            Me(CLUSTER, life.me, life.incarnation),
            life.broker,
            is_lost=life.standing.is_lost,
            send=lambda message: life.world.transactions.to_coordinator(life, message),
            alarm=self._alarm.set,
        )
        life.broker.transactions = self

    def _on_alarm(self, now: Instant) -> Instant | None:
        self._life.standing.is_lost()
        return self.service.ring(now)

    def forward(
        self,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[Instant, bytes | ErrorCode], None],
    ) -> Callable[[], None]:
        now = self._life.world.now
        forget = self.service.forward(now, frame, client_address, deadline, done)
        return lambda: forget(self._life.world.now)


class Ways:
    """The connections between brokers and transaction coordinators: what is on its way when one
    ends is lost, or comes late and is of a connection that is no more.

    One takes new connections; who came before it, and lives on, keeps those that it has.
    """

    def __init__(self, network: Network, lives: Mapping[BrokerId, "Life"]) -> None:
        self.coordinator: Coordinator | None = None
        """Who takes new connections."""
        self.address = TRANSACTIONS_ID
        """Where that one is."""
        self.look: Callable[[Life, FromTransactions], bool] = lambda _life, _message: True
        """Told of each message of a coordinator as it arrives at a broker; False: it is lost."""
        self._network = network
        self._lives = lives
        self._connections = 0
        self._known: dict[int, Coordinator] = {}
        """All that live, by where they are."""

    # -- lives

    def begin(self, coordinator: Coordinator, address: BrokerId = TRANSACTIONS_ID) -> None:
        """Brokers that are connected to nobody find it soon."""
        assert address not in self._known, "end the one before first"
        self.coordinator, self.address = coordinator, address
        self._known[address] = coordinator
        self._network.awake(address)
        for life in list(self._lives.values()):
            if not life.transactions.connection:
                self.connect(life)

    def end(self, address: BrokerId | None = None) -> None:
        """It dies: every connection with it ends."""
        gone = self.address if address is None else address
        del self._known[gone]
        self._network.died(gone)
        if gone == self.address:
            self.coordinator = None
        for life in list(self._lives.values()):
            if life.transactions.connection and life.transactions.peer == gone:
                self._part(life)
                self.connect(life)

    def knows(self, address: int) -> Coordinator | None:
        return self._known.get(address)

    def is_scripted(self, address: int) -> bool:
        """Whether a test takes the coordinator's part there."""
        return address == TRANSACTIONS_ID and address in self._known

    def connect(self, life: "Life") -> None:
        """A new connection, whatever became of the last one."""
        self._part(life)
        if self.coordinator is None:
            return
        self._connections += 1
        number = life.transactions.connection = self._connections
        life.transactions.peer = self.address

        def connected() -> None:
            if life.transactions.connection == number:
                life.transactions.service.up(life.world.now)

        now = self._network.timeline.now
        life.world.later(life, Instant(now + int(CONNECT_MS * 1e6)), connected)

    def _part(self, life: "Life") -> None:
        before, life.transactions.connection = life.transactions.connection, 0
        if not before:
            return
        if life.alive:
            life.turn(lambda: life.transactions.service.down(life.world.now))
        known = self._known.get(life.transactions.peer)
        if known is not None:
            known.parted(life.me, life.incarnation)

    def ended(self, life: "Life") -> None:
        """A broker's life is over."""
        self._part(life)

    # -- messages

    def to_coordinator(self, life: "Life", message: ToTransactions) -> None:
        number, peer = life.transactions.connection, life.transactions.peer
        if number and not self._network.push(life.me, peer, (number, encode(message))):
            self._overflows(life)

    def to_broker(
        self, broker: BrokerId, message: FromTransactions, address: BrokerId | None = None
    ) -> None:
        """What a coordinator sends, the latest where no other is named."""
        life, sender = self._lives.get(broker), self.address if address is None else address
        if life is None or not life.transactions.connection or life.transactions.peer != sender:
            return
        parts = (life.transactions.connection, encode(message))
        if not self._network.push(sender, broker, parts):
            self._overflows(life)

    def _overflows(self, life: "Life") -> None:
        """Nothing is missing from the middle of a connection: it ends, and another one begins."""
        now = self._network.timeline.now
        life.world.later(life, now, lambda: self.connect(life))

    def deliver(self, sender: int, to: int, message: tuple[int, bytes]) -> None:
        """What the network brings, unless its connection has ended."""
        connection, frame = message
        is_up = to >= TRANSACTIONS_ID
        life = self._lives.get(BrokerId(sender if is_up else to))
        if life is None or life.transactions.connection != connection:
            return
        if is_up:
            known, said = self._known.get(to), decode_to_transactions(frame)
            if known is not None:
                known.heard(life.me, life.incarnation, said)
        elif self.look(life, decode_from_transactions(frame)):
            received = life.transactions.service.received
            life.turn(partial(received, life.world.now, frame))

    # -- what goes wrong

    def cut(self, broker: BrokerId) -> None:
        """Nothing passes between it and the coordinator it speaks to."""
        life = self._lives.get(broker)
        self._network.cut(broker, self.address if life is None else life.transactions.peer)

    def mend_all(self, *, breaks: Callable[[], bool] = lambda: True) -> None:
        """What was held comes, unless the connection broke meanwhile."""
        for broker, life in self._lives.items():
            for address in {life.transactions.peer, self.address, *self._known}:
                pipes = [self._network.pipe(broker, address), self._network.pipe(address, broker)]
                if not any(one.is_cut for one in pipes):
                    continue
                self._network.heal_link(broker, address, lose=False)
                if life.transactions.peer == address and life.transactions.connection and breaks():
                    self.connect(life)
