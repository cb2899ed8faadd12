"""Drawn histories of transactions: producers at work while coordinators, brokers and connections
die, leaders change, and coordinators of the past live on.
"""

from random import Random

from harness.toy_coordinators import Process
from harness.toy_producers import ToyProducer
from harness.transaction_truth import remembered, replayed
from harness.transaction_world import World
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.wire.transactions import STATE_TOPIC

IDS = ("a", "b", "c", "d")
FAULTS = (
    "coordinator",
    "zombie",
    "connection",
    "broker",
    "state leader",
    "data leader",
    "producer",
    "topic",
    "late",
    "level",
)
MANY_KEYS = 5
FAULTS_IN_ALL = 30
ZOMBIES_MAX = 3
HEALED_MS = 120_000
"""Every time-out has come by then."""


class History:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(seed)
        self.zombies: list[Process] = []
        self.producers: list[ToyProducer] = []
        self.faults = self.rng.sample(FAULTS, self.rng.randint(1, len(FAULTS)))
        self.world.lags = {
            BrokerId(broker): self.rng.choice((1, 1, 10, 100)) for broker in self.world.brokers
        }
        self.fault_each_ms = self.rng.choice((4, 15, 60))
        self.keys = [key for key in self.world.partitions if not key[0].startswith("__")]

    def run(self) -> None:
        world, rng = self.world, self.rng
        world.start_coordinator()
        for name in (*IDS, *rng.sample(IDS, rng.randint(0, 2))):
            self._begin(name)
        for _ in range(FAULTS_IN_ALL):
            world.run(rng.expovariate(1 / self.fault_each_ms))
            getattr(self, "_" + rng.choice(self.faults).replace(" ", "_"))()
            self._supervise()
        self._heal()
        world.truth.check()
        self._check_memory()

    def _begin(self, name: str) -> None:
        producer = ToyProducer(self.world, name)
        self.producers.append(producer)
        producer.live(producer.drawn(self.rng, self.keys, transactions=self.rng.randint(1, 30)))

    def _supervise(self) -> None:
        """What died is started again, mostly soon."""
        if not self.world.coordinator.alive and self.rng.random() < 0.8:
            self.world.start_coordinator()
        for broker in self.world.brokers.values():
            if not broker.alive and self.rng.random() < 0.5:
                self.world.start_broker(broker.id)
        for zombie in self.zombies:
            if self.rng.random() < 0.3:
                zombie.go_on()

    # -- faults

    def _coordinator(self) -> None:
        self.world.kill_coordinator(self.world.coordinator)

    def _zombie(self) -> None:
        """It stands still, another takes over, and later it goes on as if nothing had been."""
        process = self.world.coordinator
        if process.alive and process.machine is not None:
            if len(self.zombies) >= ZOMBIES_MAX:
                self.world.kill_coordinator(self.zombies.pop(0))
            process.stand_still()
            self.zombies.append(process)
            self.world.start_coordinator()
            if self.rng.random() < 0.5:
                self.world.timeline.after(self.rng.expovariate(1 / 2), process.go_on)

    def _connection(self) -> None:
        self.world.reconnect(self.rng.choice(list(self.world.brokers.values())))

    def _broker(self) -> None:
        alive = [one.id for one in self.world.brokers.values() if one.alive]
        if len(alive) > 1:
            self.world.kill_broker(self.rng.choice(alive))

    def _state_leader(self) -> None:
        self._move([key for key in self.world.partitions if key[0] == STATE_TOPIC])

    def _data_leader(self) -> None:
        self._move([key for key in self.world.partitions if key[0] != STATE_TOPIC])

    def _move(self, keys: list[tuple[str, int]]) -> None:
        self.world.move(self.rng.choice(keys), BrokerId(self.rng.randrange(3)))  # type: ignore[arg-type]  # a key

    def _producer(self) -> None:
        """It dies; another instance begins with its id."""
        producer = self.rng.choice(self.producers)
        producer.dies()
        self._begin(producer.transactional_id)

    def _late(self) -> None:
        """What somebody sent a while ago under version 2 comes now, perhaps once more."""
        producer = self.rng.choice(self.producers)
        if producer.late:
            self.world.later(self.rng.choice(producer.late))

    def _level(self) -> None:
        """Producers hear of it late, or never."""
        self.world.set_level(self.rng.choice((1, 2)))

    def _topic(self) -> None:
        """One comes, and is written to before everybody has heard of it; one goes."""
        name = f"n{len(self.world.records)}"
        self.world.create(name, 1)
        self.keys.append((name, Partition(0)))
        if len(self.keys) > MANY_KEYS:
            topic, _ = self.keys.pop(self.rng.randrange(MANY_KEYS))
            self.world.delete(topic)
            self.keys[:] = [key for key in self.keys if key[0] != topic]

    # -- in the end

    def _heal(self) -> None:
        world = self.world
        for broker in list(world.brokers.values()):
            world.start_broker(broker.id)
        for zombie in self.zombies:
            zombie.go_on()
        if not world.coordinator.alive:
            world.start_coordinator()
        world.run(HEALED_MS)
        assert all(producer.is_over for producer in self.producers), "somebody waits for ever"

    def _check_memory(self) -> None:
        machine = self.world.coordinator.machine
        assert machine is not None
        for key in self.world.partitions:
            if key[0] == STATE_TOPIC:
                place = machine.partition(key[1])
                assert place is not None
                assert place.shard is not None, f"{key} is not open"
                assert remembered(self.world, place.shard) == replayed(self.world, key), key
