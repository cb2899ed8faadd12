"""The transaction coordinator's process in a simulated cluster: its machine, its link to the
controller and its connections to brokers; and the supervisor that starts it again.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, assert_never

from harness.logs.batches import NOW_MS
from harness.machines.controllers import CLUSTER
from harness.simulation.alarm import SimulatedAlarm
from tidelog.coordinator.settings import transaction_settings
from tidelog.coordinator.transactions.events import (
    BrokerDown,
    BrokerUp,
    Effect,
    Event,
    Happened,
    IdsGiven,
    IdsRefused,
    ImageChanged,
    PartitionLeft,
    PartitionLoaded,
    PartitionNotLoaded,
    Received,
    RequestFailed,
    SendTo,
    Stop,
    Tick,
    TransactionTimedOut,
    WantIds,
)
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Epoch, Incarnation
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import FORWARD_TIMEOUT_MS
from tidelog.node.metadata import link
from tidelog.node.metadata.link import Link, Observer
from tidelog.wire.control import encode
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import FromTransactions, Hello, ToTransactions

if TYPE_CHECKING:
    from harness.simulation.cluster import SimulatedCluster

PARTED_KNOWN_MS = 0.1
RESTART_MS = 20.0


class TransactionProcess:
    """From its start to its death. `turn` is the only way in."""

    def __init__(self, world: "SimulatedCluster", incarnation: Incarnation) -> None:
        self.world = world
        self.incarnation = incarnation
        self.me = BrokerId(TRANSACTIONS_ID + incarnation)
        """Where the network finds it."""
        self.alive = True
        self.paused = False
        self.connection = 0
        """To the controller."""
        self.machine: Transactions | None = None
        self.epoch = Epoch(-1)
        self.ended_because = ""
        self.happened: list[Happened] = []
        self.link = Link(Observer(CLUSTER, incarnation))
        self._asleep: list[Callable[[], None]] = []
        self._events: list[Event] = []
        self._lives: dict[BrokerId, Incarnation] = {}
        """Who is connected, as far as it knows."""
        self._gone: set[BrokerId] = set()
        """Of those, whose connections have ended: it learns that when it speaks to them."""
        self._alarm = SimulatedAlarm(self, self._on_alarm)
        self._link_alarm = SimulatedAlarm(self, self._on_link_alarm)
        self._calls = 0

    def turn(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.paused:
            self._asleep.append(lambda: self.turn(action))
        else:
            action()

    def resume(self) -> None:
        self.paused = False
        asleep, self._asleep = self._asleep, []
        for action in asleep:
            action()

    def fail(self, reason: str) -> None:
        """It ends itself."""
        if self.alive:
            self.ended_because = reason
            self.world.transactor.died(self)

    # -- the controller

    def link_step(self, event: link.Event) -> None:
        for effect in self.link.step(self.world.now, event):
            if isinstance(effect, link.Send):
                self.world.to_coordinator(self, encode(effect.message))
            else:
                self._linked(effect)
        deadline = self.link.deadline()
        if deadline is not None:
            self._link_alarm.set(deadline)

    def _linked(self, effect: link.Effect) -> None:
        match effect:
            case link.Finished(_, result):
                self.step(_answer_of(result))
            case link.ImageChanged():
                if self.machine is not None:
                    self.step(ImageChanged())
            case link.Joined(epoch):
                self._begin(Epoch(epoch))
            case link.Fenced():
                self.fail("another one has taken its place")
            case link.TurnedAway(code, detail):
                self.fail(f"{code.name}: {detail}")
            case link.EndsWanted():
                self.link_step(link.EndsTold(()))
            case _:
                raise AssertionError(effect)

    def _on_link_alarm(self, now: Instant) -> Instant | None:
        deadline = self.link.deadline()
        if deadline is not None and deadline <= now:
            self.link_step(link.Tick())
        return self.link.deadline()

    def _begin(self, epoch: Epoch) -> None:
        """The metadata names this life."""
        if self.machine is not None:
            return
        self.epoch = epoch
        self.machine = Transactions(
            self.link.image,
            self.incarnation,
            epoch,
            transaction_settings(self.world.settings),
            lambda now: NOW_MS + now // 1_000_000,
        )
        self.world.transactions.begin(self, self.me)
        self._perform(self.machine.start(self.world.now))

    # -- brokers

    def heard(self, broker: BrokerId, incarnation: Incarnation, message: ToTransactions) -> None:
        if isinstance(message, Hello):
            self._lives[broker] = incarnation
            self._gone.discard(broker)
            self.step(BrokerUp(broker, incarnation, message.session))
        elif self._lives.get(broker) == incarnation:
            self.step(Received(broker, message))

    def parted(self, broker: BrokerId, incarnation: Incarnation) -> None:
        if self._lives.get(broker) == incarnation:
            self._gone.add(broker)

    # -- the machine

    def step(self, event: Event) -> None:
        """Take it with whatever else comes in this turn of the loop."""
        self._events.append(event)
        if len(self._events) == 1:
            self.world.timeline.at(self.world.now, lambda: self.turn(self._turn))

    def _turn(self) -> None:
        events, self._events = self._events, []
        if self.machine is not None:
            self._perform(self.machine.step_all(self.world.now, events))

    def _on_alarm(self, _now: Instant) -> Instant | None:
        self.step(Tick())
        return None

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not self.alive:
                return  # a test killed it in the middle of its turn
            match effect:
                case SendTo(broker, message):
                    self._send(broker, message)
                case WantIds():
                    self._want_ids()
                case RequestFailed(reason):
                    raise AssertionError(reason)
                case Stop(reason):
                    self.fail(reason)
                case (
                    PartitionLeft()
                    | PartitionLoaded()
                    | PartitionNotLoaded()
                    | TransactionTimedOut()
                ):
                    self.happened.append(effect)
                case _:
                    assert_never(effect)
        assert self.machine is not None
        deadline = self.machine.deadline()
        if deadline is not None:
            self._alarm.set(deadline)

    def _send(self, broker: BrokerId, message: FromTransactions) -> None:
        if not self.world.transactor.look(self, broker, message):
            return
        if broker in self._gone:
            gone = Instant(self.world.now + ms(PARTED_KNOWN_MS))
            self.world.later(self, gone, lambda: self._parts(broker))
        else:
            self.world.transactions.to_broker(broker, message, self.me)

    def _parts(self, broker: BrokerId) -> None:
        if broker in self._gone:
            self._gone.discard(broker)
            self.step(BrokerDown(broker, self._lives.pop(broker)))

    def _want_ids(self) -> None:
        self._calls += 1
        deadline = Instant(self.world.now + ms(FORWARD_TIMEOUT_MS))
        self.link_step(link.IdsAsked(self._calls, deadline))


def _answer_of(result: link.Result) -> Event:
    assert isinstance(result, link.IdBlock | ErrorCode)
    if isinstance(result, ErrorCode):
        return IdsRefused(result)
    return IdsGiven(result.first, result.count)


class Transactor:
    """The supervisor's part: one life after the other, and the controller's connections to them.

    One that stands still may live on as a zombie: its successor is started beside it.
    """

    def __init__(self, world: "SimulatedCluster") -> None:
        self.world = world
        self.processes: list[TransactionProcess] = []
        """All there were."""
        self.look: Callable[[TransactionProcess, BrokerId, FromTransactions], bool] = (
            lambda _process, _broker, _message: True
        )
        """Told of each message that one is about to send; False: it does not get that far."""
        self.restarts = True
        """Whether the latest is started again when it dies."""

    @property
    def process(self) -> TransactionProcess:
        """The latest life, which may be over."""
        return self.processes[-1]

    @property
    def alive(self) -> list[TransactionProcess]:
        return [one for one in self.processes if one.alive]

    def at(self, address: int) -> TransactionProcess | None:
        """Who lives there."""
        return next((one for one in self.alive if one.me == address), None)

    def start(self) -> TransactionProcess:
        process = TransactionProcess(self.world, Incarnation(len(self.processes) + 1))
        self.processes.append(process)
        self.world.connect(process)
        return process

    def kill(self, process: TransactionProcess | None = None) -> None:
        """As SIGKILL; of the latest where no other is named."""
        victim = self.process if process is None else process
        if victim.alive:
            self.died(victim)

    def died(self, process: TransactionProcess) -> None:
        process.alive = False
        self.world.network.died(process.me)
        if self.world.transactions.knows(process.me) is not None:
            self.world.transactions.end(process.me)
        if process is self.process and self.restarts:
            self.world.timeline.after(RESTART_MS, lambda: self._again(process))

    def _again(self, process: TransactionProcess) -> None:
        if process is self.process:
            self.start()

    def pause(self) -> TransactionProcess:
        """As SIGSTOP. Nobody sees to it: a test starts a successor, or lets it go on."""
        self.process.paused = True
        return self.process

    def resume(self, process: TransactionProcess) -> None:
        if process.alive and process.paused:
            process.resume()
            self.world.network.awake(process.me)
