"""A whole cluster in one thread: the processes' and the pipes' own code on simulated time, pipes,
disks and shared memory. All invariants are looked at after every turn.

What a process cannot do here is be slower or faster than it is told; what it says and writes is
what the real one would.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

import msgspec

from harness.disks.memory_disk import MemoryDisk
from harness.simulation.broker import Life
from harness.simulation.clock import Timeline
from harness.simulation.coordinator import SimulatedCoordinator
from harness.simulation.network import Network
from harness.simulation.rings import Shelf
from harness.simulation.topics import TopicRequests
from harness.simulation.transactions import Ways
from harness.simulation.transactor import Transactor
from harness.simulation.truth import Witness
from harness.simulation.world import Process
from tidelog.coordinator.controller import front
from tidelog.coordinator.controller.requests import BrokerLost, BrokerStarted
from tidelog.kernel.ids import (
    COORDINATOR_ID,
    TRANSACTIONS_ID,
    BrokerId,
    Epoch,
    Incarnation,
    Partition,
    TopicPartition,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.events import Fields, Kind, Value, fields_of
from tidelog.node.ipc.layout import Fences, board_size_bytes
from tidelog.node.metadata import link
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.replicas import Replica
from tidelog.wire.control import IsrAltered, ToBroker, encode
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import PartitionChanged, PartitionView

A, B, C, D = BrokerId(0), BrokerId(1), BrokerId(2), BrokerId(3)
DEATH_KNOWN_MS = 1
HANG_KNOWN_MS = 1_000
RING_BYTES = 64 * 1024


class SimulatedCluster(TopicRequests):
    """Brokers, a coordinator that may be dead, a supervisor that is never wrong."""

    def __init__(
        self,
        seed: int = 1,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        ring_bytes: int = RING_BYTES,
        directories: int = 1,
    ) -> None:
        self.rng = Random(seed)
        self.settings = settings or {}
        self.directories = directories
        self.timeline = Timeline()
        self.network = Network(
            self.timeline, Random(self.rng.random()), self._deliver, self._listens
        )
        self.witness = Witness()
        self.shelf = Shelf(ring_bytes)
        self.fences = Fences(memoryview(bytearray(board_size_bytes(0))))
        self.disks = {BrokerId(one): MemoryDisk() for one in range(brokers)}
        self.full_at = dict.fromkeys(self.disks, Instant(0))
        self.generations = dict.fromkeys(self.disks, 0)
        self.lives: dict[BrokerId, Life] = {}
        self.transactions = Ways(self.network, self.lives)
        self.transactor = Transactor(self)
        self.incarnations = dict.fromkeys(self.disks, 0)
        self.ended_at: dict[BrokerId, Instant] = {}
        """When the latest life of each that is over ended."""
        self._swept: dict[BrokerId, int] = {}
        self.notes: list[tuple[BrokerId, str, TopicPartition, Fields]] = []
        self.coordinator = SimulatedCoordinator(
            self.timeline,
            Random(self.rng.random()),
            self.settings,
            self.fences,
            self._to_broker,
            self.witness.members,
        )
        self.look_at_message: Callable[[BrokerId, BrokerId, list[bytes]], bool] = lambda *_: True
        """Told of each message between brokers as it arrives; False: it is lost."""
        self.look_at_turn: Callable[[Life], None] = lambda _life: None
        """Told of each turn of a broker's loop when it is over."""
        self.isr_outcomes: list[ErrorCode] = []
        """What the coordinator answered to leaders, on its way or there."""
        self.supervisor_is_silent = False
        """It tells the coordinator of no death and no hang: a test decides what follows."""
        self._connections = 0
        self.start_coordinator()
        for broker in self.disks:
            self.start(broker)
        self.until(lambda: all(life.serving for life in self.lives.values()))

    # -- time

    @property
    def now(self) -> Instant:
        return self.timeline.now

    def run(self, milliseconds: float) -> None:
        until = Instant(self.now + ms(milliseconds))
        while self.timeline.step(until):
            pass

    def until(self, true: Callable[[], bool], *, within_ms: float = 30_000) -> None:
        """Let things happen until it is so; it must become so."""
        until = Instant(self.now + ms(within_ms))
        while not true():
            assert self.timeline.step(until), f"not within {within_ms} ms"

    def later(self, process: Process, when: Instant, action: Callable[[], None]) -> None:
        self.timeline.at(when, lambda: process.turn(action))

    # -- lives

    def start(self, broker: BrokerId, **settings: str) -> Life:
        assert broker not in self.lives, broker
        self.incarnations[broker] += 1
        life = self.lives[broker] = Life(
            self,
            broker,
            Incarnation(self.incarnations[broker]),
            self.disks[broker],
            fences=self.fences,
            shelf=self.shelf,
            disk_generation=self.generations[broker],
            directories=self.directories,
            settings={**self.settings, **settings},
        )
        self._look_anew(life)
        self.coordinator.tell(BrokerStarted(broker, life.incarnation))
        life.start()
        self.network.awake(broker)
        self.connect(life)
        self.transactions.connect(life)
        return life

    def kill(self, broker: BrokerId) -> None:
        """As SIGKILL: what it wrote stays, in its files and in the rings."""
        life = self.lives.pop(broker)
        self._ended(life)
        self.disks[broker].kill()

    def lose_power(self, broker: BrokerId, rng: Random | None = None) -> None:
        """As kill, and what was not synced is lost."""
        life = self.lives.pop(broker, None)
        if life is not None:
            self._ended(life)
        self.generations[broker] += 1
        self.disks[broker].lose_power(rng)

    def wipe(self, broker: BrokerId) -> None:
        """It dies, and its next life finds an empty disk."""
        self.kill(broker)
        self.disks[broker] = MemoryDisk()

    def stop(self, broker: BrokerId) -> None:
        """A clean stop: leave, close, end."""
        self.begin_stop(broker)
        self.until(lambda: broker not in self.lives)

    def begin_stop(self, broker: BrokerId) -> None:
        life = self.lives[broker]

        def end() -> None:
            if not life.alive:
                return
            life.turn(life.close_clean)
            del self.lives[broker]
            self._ended(life)
            self.disks[broker].kill()

        life.turn(lambda: life.leave(lambda: self.timeline.after(0.1, end)))

    def _ended(self, life: Life) -> None:
        life.alive = False
        self.ended_at[life.me] = self.now
        self.transactions.ended(life)
        self.network.died(life.me)
        self.timeline.after(DEATH_KNOWN_MS, partial(self._tell_lost, life))
        self.timeline.after(0.1, life.end_connections)

    def _tell_lost(self, life: Life) -> None:
        if not self.supervisor_is_silent:
            self.coordinator.tell(BrokerLost(life.me, life.incarnation))

    def pause(self, broker: BrokerId) -> None:
        """As SIGSTOP: the supervisor sees it after a second."""
        life = self.lives[broker]
        life.paused = True

        def hangs() -> None:
            if life.paused and life.alive:
                self._tell_lost(life)
                life.end_connections()

        self.timeline.after(HANG_KNOWN_MS, hangs)

    def resume(self, broker: BrokerId) -> None:
        life = self.lives[broker]
        life.resume()
        self.network.awake(broker)

    # -- the coordinator

    def start_coordinator(self) -> None:
        self.coordinator.start()
        self.network.awake(COORDINATOR_ID)
        for broker, incarnation in self.incarnations.items():
            if incarnation:
                life = self.lives.get(broker)
                told = BrokerLost if life is None or life.paused else BrokerStarted
                self.coordinator.tell(told(broker, Incarnation(incarnation)))
        for process in self._connected():
            self.connect(process)

    def kill_coordinator(self) -> None:
        self.coordinator.kill()
        self.network.died(COORDINATOR_ID)
        for process in self._connected():
            process.connection = 0
            process.turn(partial(process.link_step, link.Disconnected()))

    def connect(self, process: Process) -> None:
        """To the coordinator."""
        if self.coordinator.front is None:
            return
        self._connections += 1
        number = process.connection = self._connections

        def connected() -> None:
            if process.connection == number:
                process.link_step(link.Connected())

        self.later(process, Instant(self.now + ms(0.1)), connected)

    def _connected(self) -> list[Process]:
        return [*self.lives.values(), *self.transactor.alive]

    def _process(self, name: int) -> Process | None:
        return self.lives.get(BrokerId(name)) or self.transactor.at(name)

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self.coordinator.image

    # -- messages

    def mend(self, one: int, other: int, *, lose: bool | None = None) -> None:
        """A cut link is whole again. Of what it held some may be lost; who lost something on the
        way to or from the coordinator connects anew."""
        if COORDINATOR_ID not in {one, other}:
            self.network.heal_link(one, other, lose=lose)
            return
        life = self.lives.get(BrokerId(min(one, other)))
        breaks = self.rng.random() < 0.5 if lose is None else lose
        if breaks and life is not None:
            self._break(life)
        self.network.heal_link(one, other, lose=False)

    def mend_all(self) -> None:
        everybody = [*self.disks, COORDINATOR_ID]
        for one, other in combinations(everybody, 2):
            if self.network.pipe(one, other).is_cut or self.network.pipe(other, one).is_cut:
                self.mend(one, other)
        self.network.heal()

    def _break(self, life: Life) -> None:
        """The connection to the coordinator ends, and another one begins."""
        life.connection = 0
        life.turn(partial(life.link_step, link.Disconnected()))
        self.connect(life)

    def push(self, life: Life, peer: BrokerId, parts: list[bytes]) -> bool:
        return self.network.push(life.me, peer, parts)

    def to_coordinator(self, process: Process, frame: bytes) -> None:
        message = (process.connection, f"{process.me}/{process.incarnation}".encode(), frame)
        if not self.network.push(process.me, COORDINATOR_ID, message):
            again = Instant(self.now + ms(100))
            self.later(process, again, partial(process.link_step, link.Connected()))

    def _to_broker(self, peer: bytes, message: ToBroker) -> None:
        if isinstance(message, IsrAltered):
            self.isr_outcomes += message.outcomes
        broker = BrokerId(int(peer.split(b"/")[0]))
        process = self._process(broker)
        if process is None or peer != f"{broker}/{process.incarnation}".encode():
            return
        if not self.network.push(COORDINATOR_ID, broker, (process.connection, encode(message))):
            self.coordinator.step(front.PeerLost(peer))

    def _listens(self, process: int) -> bool:
        if process == COORDINATOR_ID:
            return self.coordinator.front is not None
        known = self._process(process)
        return self.transactions.is_scripted(process) or (known is not None and not known.paused)

    def _deliver(self, sender: int, to: int, message: Any) -> None:
        if to == COORDINATOR_ID:
            connection, peer, frame = message
            process = self._process(sender)
            if process is not None and process.connection == connection:
                self.coordinator.step(front.Received(peer, frame))
        elif sender == COORDINATOR_ID:
            (connection, frame), process = message, self._process(to)
            assert process is not None
            if connection == process.connection:
                process.turn(partial(process.link_step, link.Received(frame)))
        elif max(sender, to) >= TRANSACTIONS_ID:
            self.transactions.deliver(sender, to, message)
        elif self.look_at_message(BrokerId(sender), BrokerId(to), message):
            self.lives[BrokerId(to)].received(message)

    # -- what a test decides

    def elect(
        self,
        leader: BrokerId,
        *in_sync: BrokerId,
        epoch: int | None = None,
        topic: str = "t",
        partition: int = 0,
    ) -> None:
        """In the controller's place: this leader, in sync with these and itself, known to every
        broker that listens."""
        view = self.view(topic, partition)
        isr = tuple(one for one in view.replicas if one in {leader, *in_sync})
        after = msgspec.structs.replace(
            view,
            leader=leader,
            isr=isr,
            leader_epoch=Epoch(view.leader_epoch + 1 if epoch is None else epoch),
            partition_epoch=Epoch(view.partition_epoch + 1),
            elr=(),
            last_known=(),
        )
        topic_id = self.image.names[topic].id
        self.coordinator.decide(PartitionChanged(topic_id, Partition(partition), after))
        self.until(lambda: self.leads(leader, topic, partition))
        self.run(5)

    # -- what is looked at

    def noted(self, life: Life, kind: Kind, replica: Replica, values: tuple[Value, ...]) -> None:
        self.notes.append((life.me, kind.word, replica.key, fields_of(kind, values)))
        if kind in {Kind.TRUNCATED, Kind.STARTED_ANEW}:
            to = values[1]
            assert isinstance(to, int)
            cut = self.witness.cut if kind is Kind.TRUNCATED else self.witness.emptied
            cut(replica, life.me, to)

    def _look_anew(self, life: Life) -> None:
        logs = {log.name.key: log for log in life.logs}
        self.witness.reborn(
            life.me, logs, life.incarnation, damaged=life.storage.without(self.witness.truths)
        )

    def turned(self, life: Life) -> None:
        if life.steps.swept and self._swept.get(life.me) != life.incarnation:
            self._swept[life.me] = life.incarnation
            self._look_anew(life)  # it may have deleted what no topic has
        # Who has not heard of a deletion still has a replica that nothing is known of any more.
        known = [one for one in life.replicas if one.topic_id in self.image.topics]
        grew = [self.witness.look(life.me, life.incarnation, replica) for replica in known]
        kept = {log.name.key for log in life.logs} | life.logs.offline.keys()
        if self.witness.gone(life.me, life.incarnation, kept) or any(grew):
            self.witness.members(self.image)
        self.look_at_turn(life)

    # -- what tests ask

    def view(self, topic: str = "t", partition: int = 0) -> PartitionView:
        return self.image.names[topic].partitions[partition]

    def replica(self, broker: BrokerId, topic: str = "t", partition: int = 0) -> Replica:
        found = next(one for one in self.lives[broker].replicas if one.key == (topic, partition))
        assert isinstance(found, Replica)
        return found

    def leads(self, broker: BrokerId, topic: str = "t", partition: int = 0) -> bool:
        """Whether that broker takes itself for the leader."""
        life = self.lives.get(broker)
        return life is not None and any(
            one.leader is not None for one in life.replicas if one.key == (topic, partition)
        )
