"""A transaction whose coordinator, or a leader it needs, dies at each moment of its way: the table
is made of steps, moments and victims. Whatever died, the producer hears that it is committed, or
aborted, and each partition holds that end once.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from harness import transaction_plants as plants
from harness.living import Life
from harness.toy_brokers import ToyBroker
from harness.toy_coordinators import Process
from harness.toy_producers import VERSIONS, ToyProducer
from harness.toy_transaction_logs import End
from harness.transaction_world import World
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.records import iterate_records
from tidelog.wire.transactions import STATE_TOPIC, Append, FromTransactions, Mark, Marker

KEYS = (("t0", Partition(0)), ("t1", Partition(1)))
RESTART_MS = 50
STEPS = (
    "AddPartitions",
    "AddOffsets",
    "Prepare",
    "marker t0",
    "marker t1",
    "marker __consumer_offsets",
    "Complete",
)
MOMENTS = {
    "before": ("append", "mark"),
    "appended": ("appended", "marked"),
    "committed": ("committed", "marker committed"),
}
VICTIMS = ("coordinator", "leader of its state partition", "leader of a data partition")


def step_of(request: Append | Marker) -> str:
    """Which step of a transaction a broker is about to take, or takes."""
    if isinstance(request, Marker):
        return f"marker {request.topic}"
    record = next(iterate_records(memoryview(request.batch)))
    known = records.read(record.key or b"", record.value)
    value = None if known is None else known.value
    if value is None or value.state is TxnState.EMPTY:
        return "other"
    if value.state is TxnState.ONGOING:
        topics = {topic for topic, _ in value.partitions}
        return "AddOffsets" if OFFSETS_TOPIC in topics else "AddPartitions"
    return "Prepare" if value.state.is_prepared else "Complete"


def at_work(version: int = 1) -> tuple[World, ToyProducer]:
    world = World()
    world.start_coordinator()
    world.run(10)
    producer = ToyProducer(world, "tx")
    producer.version = version
    producer.finish(producer.init())
    return world, producer


class Killing:
    """Kills the victim when the step comes to that moment, once, and starts it again later."""

    def __init__(
        self, world: World, producer: ToyProducer, step: str, moment: str, victim: str
    ) -> None:
        self.world = world
        self.is_done = False
        self._step, self._points = step, MOMENTS[moment]
        kills: dict[str, Callable[[], None]] = {
            "coordinator": self._coordinator,
            "leader of its state partition": partial(self._leader, producer.state_key),
            "leader of a data partition": partial(self._leader, KEYS[0]),
        }
        self._kill = kills[victim]
        if (victim, moment) == ("coordinator", "before"):
            world.on_sent = self._sent
        else:
            world.on_reached = self._reached

    def _reached(self, point: str, _broker: ToyBroker, request: Any) -> None:
        if not self.is_done and point in self._points and step_of(request) == self._step:
            self.is_done = True
            self._kill()

    def _sent(self, _process: Process, broker: BrokerId, message: FromTransactions) -> None:
        """The coordinator dies with the message on its lips."""
        said = message.markers if isinstance(message, Mark) else (message,)
        for one in said:
            if isinstance(one, Append | Marker):
                self._reached(self._points[0], self.world.brokers[broker], one)

    def _coordinator(self) -> None:
        self.world.kill_coordinator(self.world.coordinator)
        self.world.timeline.after(RESTART_MS, self._start_coordinator)

    def _start_coordinator(self) -> None:
        self.world.start_coordinator()

    def _leader(self, key: TopicPartition) -> None:
        leader = self.world.partitions[key].leader
        assert leader is not None
        self.world.kill_broker(leader)
        self.world.timeline.after(RESTART_MS, lambda: self.world.start_broker(BrokerId(leader)))


def ends(world: World, key: TopicPartition) -> list[bool]:
    return [one.committed for one in world.partitions[key].committed if isinstance(one, End)]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("step", "moment", "victim"), list(product(STEPS, MOMENTS, VICTIMS)), ids=str
)
def test_who_dies_when_makes_no_difference_to_the_outcome(
    step: str, moment: str, victim: str, version: int, *, committed: bool
) -> None:
    world, producer = at_work(version)
    killing = Killing(world, producer, step, moment, victim)
    producer.finish(producer.transaction(KEYS, committed=committed, offsets=True))
    producer.finish(producer.transaction(KEYS, committed=True))
    world.run(2_000)
    world.truth.check()
    assert killing.is_done, "the moment never came"
    assert [one.told for one in producer.transactions] == [committed, True]
    epochs = [one.producer_epoch for one in producer.transactions]
    assert epochs == ([0, 1] if version == 2 else [0, 0])
    assert [ends(world, key) for key in KEYS] == [[committed, True]] * 2
    assert ends(world, producer.offsets_key) == [committed]


def uncommitted_outcome() -> None:
    """The outcome stands in a log that loses it, when a new coordinator reads that log."""
    world, producer = at_work()
    key = producer.state_key
    written = producer.begin()

    def work() -> Life:
        yield from producer.add(written, KEYS[0])
        yield from producer.write(written, KEYS[0])

    producer.finish(work())
    world.frozen.add(key)
    producer.live(producer.end(written, committed=True))
    world.run(5)  # it is in the leader's log alone
    producer.dies()
    world.kill_coordinator(world.coordinator)
    world.start_coordinator()
    world.run(50)
    leader = world.partitions[key].leader
    assert leader is not None
    world.kill_broker(leader)
    world.frozen.clear()
    world.run(500)
    another = ToyProducer(world, "tx")
    another.finish(another.init())
    world.start_broker(leader)
    world.run(2_000)
    world.truth.check()
    assert ends(world, KEYS[0]) == [False]


def test_an_outcome_that_its_log_may_lose_yet_goes_nowhere() -> None:
    uncommitted_outcome()


def test_without_the_barrier_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.no_barrier(monkeypatch)
    with pytest.raises(AssertionError, match="does not say so"):
        uncommitted_outcome()


def test_a_state_partition_that_nobody_leads_waits_alone() -> None:
    world, producer = at_work()
    other = next(
        one
        for one in (ToyProducer(world, f"other{at}") for at in range(10))
        if one.state_key != producer.state_key
    )
    partition = world.partitions[producer.state_key]
    partition.elect(None, partition.isr)
    world.write_view(producer.state_key)
    world.run(10)
    other.finish(other.init())
    other.finish(other.transaction(KEYS))
    producer.live(producer.transaction((KEYS[0],)))
    world.run(100)
    assert not producer.is_over
    world.move(producer.state_key, partition.isr[0])
    world.until(lambda: producer.is_over)
    world.run(100)
    world.truth.check()
    assert STATE_TOPIC in world.image.names
