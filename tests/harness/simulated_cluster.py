"""A whole cluster in one thread: the brokers', the coordinator's and the pipes' own code on
simulated time, pipes, disks and shared memory. All invariants are looked at after every turn.

What a process cannot do here is be slower or faster than it is told; what it says and writes is
what the real one would.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from harness.memory_disk import MemoryDisk
from harness.simulated_broker import Life
from harness.simulated_coordinator import SimulatedCoordinator
from harness.simulated_network import Network
from harness.simulated_rings import Shelf
from harness.simulated_time import Timeline
from harness.simulated_truth import Witness
from tidelog.coordinator.controller import front
from tidelog.coordinator.controller.requests import BrokerLost, BrokerStarted
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Incarnation, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.layout import Fences, board_size_bytes
from tidelog.node.metadata import link
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.replicas import Replica
from tidelog.wire.control import ToBroker, encode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.metadata_records import PartitionView
from tidelog.wire.replication import FROM_FOLLOWER, decode

A, B, C, D = BrokerId(0), BrokerId(1), BrokerId(2), BrokerId(3)
DEATH_KNOWN_MS = 1
HANG_KNOWN_MS = 1_000
RING_BYTES = 64 * 1024


class SimulatedCluster:
    """Brokers, a coordinator that may be dead, a supervisor that is never wrong."""

    def __init__(
        self,
        seed: int = 1,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self.rng = Random(seed)
        self.settings = settings or {}
        self.timeline = Timeline()
        self.network = Network(
            self.timeline, Random(self.rng.random()), self._deliver, self._listens
        )
        self.witness = Witness()
        self.shelf = Shelf(ring_bytes)
        self.fences = Fences(memoryview(bytearray(board_size_bytes(0))))
        self.disks = {BrokerId(one): MemoryDisk() for one in range(brokers)}
        self.generations = dict.fromkeys(self.disks, 0)
        self.lives: dict[BrokerId, Life] = {}
        self.incarnations = dict.fromkeys(self.disks, 0)
        self.notes: list[tuple[BrokerId, str, TopicPartition, dict[str, int | str]]] = []
        self.coordinator = SimulatedCoordinator(
            self.timeline,
            Random(self.rng.random()),
            self.settings,
            self.fences,
            self._to_broker,
            self.witness.members,
        )
        self.look_at_message: Callable[[BrokerId, BrokerId, list[bytes]], bool] = _all_pass
        """Told of each message between brokers as it arrives; False: it is lost."""
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

    def later(self, life: Life, when: Instant, action: Callable[[], None]) -> None:
        self.timeline.at(when, lambda: life.turn(action))

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
            settings={**self.settings, **settings},
        )
        self.witness.reborn(broker, {log.name.key: log for log in life.logs}, life.incarnation)
        self.coordinator.tell(BrokerStarted(broker, life.incarnation))
        life.start()
        self.network.awake(broker)
        self._connect(life)
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

    def stop(self, broker: BrokerId) -> None:
        """A clean stop: leave, close, end."""
        self.begin_stop(broker)
        self.until(lambda: broker not in self.lives)

    def begin_stop(self, broker: BrokerId) -> None:
        life = self.lives[broker]

        def left() -> None:
            self.timeline.after(0.1, end)

        def end() -> None:
            if not life.alive:
                return
            life.turn(life.close_clean)
            del self.lives[broker]
            self._ended(life)
            self.disks[broker].kill()

        life.turn(lambda: life.leave(left))

    def _ended(self, life: Life) -> None:
        life.alive = False
        self.network.died(life.me)
        self.timeline.after(DEATH_KNOWN_MS, lambda: self._tell_lost(life))
        self.timeline.after(0.1, life.end_connections)

    def _tell_lost(self, life: Life) -> None:
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
        for life in list(self.lives.values()):
            self._connect(life)

    def kill_coordinator(self) -> None:
        self.coordinator.kill()
        self.network.died(COORDINATOR_ID)
        for life in list(self.lives.values()):
            life.connection = 0
            life.turn(partial(life.link_step, link.Disconnected()))

    def _connect(self, life: Life) -> None:
        if self.coordinator.front is None:
            return
        self._connections += 1
        number = life.connection = self._connections

        def connected() -> None:
            if life.connection == number:
                life.link_step(link.Connected())

        self.later(life, Instant(self.now + ms(0.1)), connected)

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self.coordinator.image

    # -- messages

    def push(self, life: Life, peer: BrokerId, parts: list[bytes]) -> bool:
        return self.network.push(life.me, peer, parts)

    def to_coordinator(self, life: Life, frame: bytes) -> None:
        message = (life.connection, f"{life.me}/{life.incarnation}".encode(), frame)
        self.network.push(life.me, COORDINATOR_ID, message)

    def _to_broker(self, peer: bytes, message: ToBroker) -> None:
        broker = BrokerId(int(peer.split(b"/")[0]))
        life = self.lives.get(broker)
        if life is not None and peer == f"{broker}/{life.incarnation}".encode():
            self.network.push(COORDINATOR_ID, broker, (life.connection, encode(message)))

    def _listens(self, process: int) -> bool:
        if process == COORDINATOR_ID:
            return self.coordinator.front is not None
        life = self.lives.get(BrokerId(process))
        return life is not None and not life.paused

    def _deliver(self, sender: int, to: int, message: Any) -> None:
        if to == COORDINATOR_ID:
            connection, peer, frame = message
            life = self.lives.get(BrokerId(sender))
            if life is not None and life.connection == connection:
                self.coordinator.step(front.Received(peer, frame))
            return
        life = self.lives[BrokerId(to)]
        if sender == COORDINATOR_ID:
            connection, frame = message
            if connection == life.connection:
                life.turn(lambda: life.link_step(link.Received(frame)))
        elif self.look_at_message(BrokerId(sender), life.me, message):
            life.received(message)

    # -- what is looked at

    def noted(self, life: Life, kind: str, replica: Replica, numbers: dict[str, int | str]) -> None:
        self.notes.append((life.me, kind, replica.key, numbers))
        if kind == "truncated":
            self.witness.cut(replica, life.me, int(numbers["to"]))
        elif kind == "started_anew":
            self.witness.emptied(replica, life.me, int(numbers["to"]))

    def turned(self, life: Life) -> None:
        grew = [self.witness.look(life.me, life.incarnation, replica) for replica in life.replicas]
        if any(grew):
            self.witness.members(self.image)

    # -- what tests ask

    def create(
        self, name: str = "t", *replicas: BrokerId, partitions: int = 1, **configs: str
    ) -> None:
        """A topic on these brokers, the first of which leads; known everywhere afterwards."""
        brokers = [*replicas] or list(self.disks)
        topic = creation.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[
                creation.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
            assignments=[
                creation.CreatableReplicaAssignment(
                    partition_index=at,
                    broker_ids=_from(brokers, at),
                )
                for at in range(partitions)
            ],
        )
        request = creation.CreateTopicsRequest(topics=[topic])
        frame = self._forward(joined(encode_request(creation.API, 7, 1, None, request)))
        _, answer = decode_response(creation.API, 7, memoryview(frame))
        assert [row.error_code for row in answer.topics] == [0], answer
        self.until(lambda: all(name in life.link.image.names for life in self.lives.values()))

    def configure(self, topic: str, name: str, value: str) -> None:
        entry = altering.AlterableConfig(name=name, config_operation=0, value=value)
        row = altering.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[entry])
        request = altering.IncrementalAlterConfigsRequest(resources=[row])
        self._forward(joined(encode_request(altering.API, 1, 1, None, request)))

    def _forward(self, frame: bytes) -> bytes:
        life = next(iter(self.lives.values()))
        results: list[bytes] = []

        def done(result: object) -> None:
            assert isinstance(result, bytes), result
            results.append(result)

        deadline = Instant(self.now + ms(10_000))
        key = int.from_bytes(frame[4:6], "big")
        life.turn(lambda: life.forward(key, frame[4:], "127.0.0.1:1", deadline, done))
        self.until(lambda: bool(results))
        return results[0]

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


def _from(brokers: list[BrokerId], at: int) -> list[int]:
    """All of them, in a circle, from that place on."""
    first = at % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def _all_pass(_sender: BrokerId, _to: BrokerId, _parts: list[bytes]) -> bool:
    return True


def kinds(parts: list[bytes]) -> list[str]:
    """What is said in a message, for tests that hold one kind back."""
    return [type(message).__name__ for message, _ in decode(parts).entries]


def is_from_follower(parts: list[bytes]) -> bool:
    return isinstance(decode(parts).entries[0][0], FROM_FOLLOWER)
