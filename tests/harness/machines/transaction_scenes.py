"""Scenes with the transaction coordinator's machine: a world at work, and what was said in it."""

from collections.abc import Callable
from typing import Any, TypeVar

from harness.machines.toy_coordinators import Process
from harness.machines.toy_producers import ToyProducer
from harness.machines.transaction_world import World
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.events import PartitionLeft, PartitionLoaded, Received
from tidelog.coordinator.transactions.records import TxnRecord
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.control import Client
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.records import iterate_records
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Answered,
    Failed,
    Forward,
    FromTransactions,
)

KEYS: tuple[TopicPartition, ...] = (("t0", Partition(0)), ("t1", Partition(1)))
MessageT = TypeVar("MessageT", bound=FromTransactions)


def state_records(world: World, key: TopicPartition) -> list[TxnRecord]:
    """What a partition of the state holds, committed."""
    rows = (
        one
        for batch in world.partitions[key].committed
        for one in iterate_records(memoryview(batch))
    )
    found = (records.read(one.key or b"", one.value) for one in rows)
    return [one for one in found if one is not None]


class Scene:
    """A coordinator that runs, one producer with an identity, and a record of what it says."""

    def __init__(self, **world: Any) -> None:
        self.world = World(**world)
        self.said: list[tuple[Instant, BrokerId, FromTransactions]] = []
        self.world.on_sent = self._listen
        self.world.start_coordinator()
        self.world.run(10)
        self.producer = ToyProducer(self.world, "tx")
        if STATE_TOPIC in self.world.image.names:
            self.producer.finish(self.producer.init())

    def another(self, name: str) -> ToyProducer:
        """A producer that has begun."""
        producer = ToyProducer(self.world, name)
        producer.finish(producer.init())
        return producer

    def _listen(self, _process: Process, broker: BrokerId, message: FromTransactions) -> None:
        self.said.append((self.world.now, broker, message))

    def sent(self, kind: type[MessageT]) -> list[MessageT]:
        """What was said of that kind, since this was last cleared."""
        return [message for _, _, message in self.said if isinstance(message, kind)]

    def loads(self) -> list[int]:
        """Partitions that were opened, in order."""
        return [
            what.partition for _, what in self.world.happened if isinstance(what, PartitionLoaded)
        ]

    def leaves(self) -> list[str]:
        return [what.reason for _, what in self.world.happened if isinstance(what, PartitionLeft)]

    @property
    def state_key(self) -> TopicPartition:
        return self.producer.state_key

    def state_leader(self) -> BrokerId:
        leader = self.world.partitions[self.state_key].leader
        assert leader is not None
        return leader

    def another_replica(self, key: TopicPartition) -> BrokerId:
        partition = self.world.partitions[key]
        return next(one for one in partition.isr if one != partition.leader)

    def lose_leader(self, key: TopicPartition) -> None:
        partition = self.world.partitions[key]
        partition.elect(None, partition.isr)
        self.world.write_view(key)
        self.world.run(5)

    def give_leader(self, key: TopicPartition) -> None:
        self.world.move(key, self.world.partitions[key].isr[0])
        self.world.run(5)

    def restart_coordinator(self, after: Callable[[], None] = lambda: None) -> None:
        self.world.kill_coordinator(self.world.coordinator)
        after()
        self.said.clear()
        self.world.start_coordinator()
        self.world.run(10)

    def forward(
        self, api: AnyApi, version: int, request: object, *, wait_ms: float = 20_000, by: int = 0
    ) -> "Asked":
        """What one broker passes on, outside of any producer's life."""
        return Asked(self, api, version, request, BrokerId(by), wait_ms)


class Asked:
    """One frame that a broker passed on, and its answer."""

    def __init__(
        self,
        scene: Scene,
        api: AnyApi,
        version: int,
        request: object,
        broker: BrokerId,
        wait_ms: float,
    ) -> None:
        self._scene = scene
        self._api = api
        self._version = version
        toy = scene.world.brokers[broker]
        toy._count += 1
        self._broker, self._call = broker, toy._count
        assert toy.coordinator is not None
        frame = joined(encode_request(api, version, 1, None, request))[4:]
        deadline = Instant(scene.world.now + ms(wait_ms))
        forward = Forward(toy.coordinator, self._call, Client("", "", ""), deadline, frame)
        scene.world.coordinator.step(Received(broker, forward))

    def answer(self) -> Any:
        """The response, the code of a refusal, or None where nothing was said."""
        for _, broker, message in self._scene.said:
            if broker != self._broker or getattr(message, "call", None) != self._call:
                continue
            if isinstance(message, Answered):
                return decode_response(self._api, self._version, memoryview(message.frame))[1]
            if isinstance(message, Failed):
                return message.code
        return None
