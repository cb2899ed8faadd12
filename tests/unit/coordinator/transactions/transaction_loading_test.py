"""How partitions of `__transaction_state` are found, fenced, loaded, opened, kept and left."""

import pytest

from harness.machines.toy_producers import ToyProducer
from harness.machines.transaction_scenes import KEYS, Scene, state_records
from harness.machines.transaction_world import World
from tidelog.coordinator.transactions.events import BrokerUp, PartitionNotLoaded, Stop
from tidelog.coordinator.transactions.records import BARRIER
from tidelog.coordinator.transactions.state_partition import Stage
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.metadata_records import TransactionsActivated
from tidelog.wire.transactions import STATE_TOPIC, Append, Mark, Read

E = ErrorCode
INIT = k22.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000)


def test_empty_partitions_open_without_a_word_in_them() -> None:
    world = World(state_partitions=5)
    world.start_coordinator()
    world.run(10)
    machine = world.coordinator.machine
    assert machine is not None
    for key, partition in world.partitions.items():
        if key[0] == STATE_TOPIC:
            assert not partition.committed
            place = machine.partition(key[1])
            assert place is not None
            assert place.is_open


def test_each_coordinator_writes_one_barrier_where_there_is_something_to_fence() -> None:
    scene = Scene()
    scene.producer.finish(scene.producer.transaction(KEYS))
    scene.restart_coordinator()
    scene.restart_coordinator()
    for key in scene.world.partitions:
        if key[0] == STATE_TOPIC:
            rows = state_records(scene.world, key)
            assert rows.count(BARRIER) == (2 if key == scene.state_key else 0)
    assert {one.epoch for one in scene.sent(Append)} == {3}


def test_a_request_that_comes_while_its_partition_is_loaded_waits_for_it() -> None:
    scene = Scene()
    scene.world.kill_coordinator(scene.world.coordinator)
    scene.world.start_coordinator()
    world = scene.world
    world.until(lambda: world.brokers[BrokerId(0)].coordinator is not None)
    asked = scene.forward(k22.API, 4, INIT)
    assert asked.answer() is None
    world.run(10)
    assert asked.answer().error_code == 0


def test_one_that_waited_for_too_long_is_told_to_come_again() -> None:
    scene = Scene()
    scene.world.frozen.add(scene.state_key)  # the barrier cannot be committed
    scene.restart_coordinator()
    asked = scene.forward(k22.API, 4, INIT)
    scene.world.run(290)
    assert asked.answer() is None
    scene.world.run(20)
    assert asked.answer().error_code == E.COORDINATOR_LOAD_IN_PROGRESS


def test_of_a_partition_that_nobody_leads_there_is_no_coordinator() -> None:
    scene = Scene()
    scene.lose_leader(scene.state_key)
    asked = scene.forward(k22.API, 4, INIT)
    assert asked.answer().error_code == E.COORDINATOR_NOT_AVAILABLE
    scene.give_leader(scene.state_key)
    asked = scene.forward(k22.API, 4, INIT)
    scene.world.run(10)
    assert asked.answer().error_code == 0


def test_a_partition_that_nobody_leads_waits_alone() -> None:
    scene = Scene()
    names = (f"id {number}" for number in range(10))
    others = (ToyProducer(scene.world, name) for name in names)
    other = next(one for one in others if one.state_key != scene.state_key)
    scene.lose_leader(scene.state_key)
    other.finish(other.init())
    other.finish(other.transaction(KEYS))
    scene.producer.live(scene.producer.transaction(KEYS[:1]))
    scene.world.run(100)
    assert not scene.producer.is_over
    scene.give_leader(scene.state_key)
    scene.world.until(lambda: scene.producer.is_over)


def test_a_long_log_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tidelog.coordinator.transactions.state_partition.TRANSACTION_CHUNK_BYTES", 300
    )
    scene = Scene(state_partitions=1)
    for number in range(20):
        producer = scene.another(f"id {number}")
        producer.finish(producer.transaction(KEYS[:1]))
    scene.restart_coordinator()
    scene.world.run(100)
    reads = [one for one in scene.sent(Read) if one.offset >= 0]
    assert len(reads) > 10
    assert [one.offset for one in reads] == sorted({one.offset for one in reads})
    machine = scene.world.coordinator.machine
    assert machine is not None
    place = machine.partition(scene.state_key[1])
    assert place is not None
    assert place.shard is not None
    assert len(place.shard) == 21


def test_a_few_partitions_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinator.transactions.partitions.TRANSACTION_LOADS_MAX", 2)
    scene = Scene(state_partitions=8)
    for number in range(20):
        scene.another(f"id {number}")
    most = 0

    def look() -> bool:
        nonlocal most
        machine = scene.world.coordinator.machine
        places = [] if machine is None else [machine.partition(index) for index in range(8)]  # type: ignore[arg-type]  # a partition
        reading = [one for one in places if one is not None and one._stage is Stage.READING]
        most = max(most, len(reading))
        return len(places) == 8 and all(one is not None and one.is_open for one in places)

    scene.world.kill_coordinator(scene.world.coordinator)
    scene.world.start_coordinator()
    scene.world.until(look)
    assert most == 2


def test_a_leader_that_moves_while_nothing_is_under_way_takes_nothing_with_it() -> None:
    scene = Scene()
    scene.said.clear()
    loads = scene.loads()
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.run(10)
    assert scene.loads() == loads
    (read,) = scene.sent(Read)
    assert (read.offset, read.leader_epoch) == (-1, 1)
    scene.producer.finish(scene.producer.transaction(KEYS))
    assert {code for _, code in scene.producer.codes} == {E.NONE}


def test_decisions_wait_until_another_leader_is_known_to_have_the_same() -> None:
    scene = Scene()
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    world = scene.world
    world.until(lambda: any(one.leader_epoch == 1 for one in scene.sent(Read)))
    scene.said.clear()
    asked = scene.forward(k22.API, 4, INIT)
    assert not scene.sent(Append)
    world.run(10)
    assert asked.answer().error_code == 0


def test_a_leader_whose_log_ends_elsewhere_is_loaded_anew() -> None:
    scene = Scene()
    scene.producer.finish(scene.producer.transaction(KEYS))
    scene.world.run(10)
    partition = scene.world.partitions[scene.state_key]
    for log in partition.logs.values():
        log.pop()  # an election that lost something; nobody may overlook it
    partition.high_watermark -= 1
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.run(20)
    assert len(scene.leaves()) == 1
    assert "its log ends at" in scene.leaves()[0]
    assert scene.loads().count(scene.state_key[1]) == 2


def test_an_append_whose_leader_is_another_one_has_the_partition_loaded_anew() -> None:
    scene = Scene()
    scene.world.frozen.add(scene.state_key)
    asked = scene.forward(k22.API, 4, INIT)
    scene.world.run(5)
    assert asked.answer() is None
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.frozen.clear()
    scene.world.run(20)
    assert asked.answer().error_code == E.NOT_COORDINATOR
    assert scene.leaves() == ["its leader is another one, or was lost"]
    assert scene.loads().count(scene.state_key[1]) == 2
    scene.another("tx")


def test_a_connection_that_breaks_with_an_append_on_it_has_the_partition_loaded_anew() -> None:
    scene = Scene()
    scene.world.frozen.add(scene.state_key)
    scene.forward(k22.API, 4, INIT)
    scene.world.run(5)
    scene.world.frozen.clear()
    scene.world.reconnect(scene.world.brokers[scene.state_leader()])
    scene.world.run(20)
    assert len(scene.leaves()) == 1
    assert scene.loads().count(scene.state_key[1]) == 2


def test_a_connection_that_breaks_with_nothing_on_it_changes_nothing() -> None:
    scene = Scene()
    scene.said.clear()
    for broker in scene.world.brokers.values():
        scene.world.reconnect(broker)
    scene.world.run(20)
    assert not scene.leaves()
    assert not scene.sent(Read)
    scene.producer.finish(scene.producer.transaction(KEYS))


def test_where_too_few_replicas_are_in_sync_there_is_no_coordinator() -> None:
    scene = Scene()
    leader = scene.state_leader()
    others = [one for one in scene.world.brokers if one != leader]
    for broker in others:
        scene.world.kill_broker(broker)
    scene.world.run(10)
    asked = scene.forward(k22.API, 4, INIT, by=leader)
    scene.world.run(10)
    assert asked.answer().error_code == E.NOT_COORDINATOR  # it is loaded anew, in vain
    asked = scene.forward(k22.API, 4, INIT, by=leader)
    assert asked.answer().error_code == E.COORDINATOR_NOT_AVAILABLE
    scene.world.start_broker(others[0])
    scene.world.run(300)
    asked = scene.forward(k22.API, 4, INIT, by=leader)
    scene.world.run(10)
    assert asked.answer().error_code == 0


def test_a_log_that_cannot_be_understood_keeps_its_partition_closed_and_no_other() -> None:
    scene = Scene()
    others = [ToyProducer(scene.world, f"id {number}") for number in range(10)]
    other = next(one for one in others if one.state_key != scene.state_key)
    partition = scene.world.partitions[scene.state_key]
    good = {broker: list(log) for broker, log in partition.logs.items()}
    for log in partition.logs.values():
        log[-1] = log[-1][:40] + b"\xff" * (len(log[-1]) - 40)
    scene.restart_coordinator()
    other.finish(other.init())
    asked = scene.forward(k22.API, 4, INIT)
    scene.world.run(400)
    assert asked.answer().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    for broker, log in good.items():
        partition.logs[broker][: len(log)] = log
    scene.world.run(200)
    scene.another("tx")


def test_a_partition_that_cannot_be_loaded_is_told_of_once_and_tried_again() -> None:
    scene = Scene()
    leader = scene.state_leader()
    others = [one for one in scene.world.brokers if one != leader]
    for broker in others:
        scene.world.kill_broker(broker)
    scene.world.run(10)
    scene.restart_coordinator()
    scene.world.run(2_000)
    told = [what for _, what in scene.world.happened if isinstance(what, PartitionNotLoaded)]
    assert told == [PartitionNotLoaded(scene.state_key[1], E.NOT_ENOUGH_REPLICAS)]
    assert 10 < len(scene.sent(Append)) < 30
    scene.world.start_broker(others[0])
    scene.world.run(200)
    scene.another("tx")


def test_another_leader_that_cannot_be_asked_yet_is_asked_again() -> None:
    scene = Scene()
    follower = scene.another_replica(scene.state_key)
    asked: list[object] = []
    toy = scene.world.brokers[follower]
    toy._leads = lambda *what: bool(asked.append(what))  # type: ignore[func-returns-value,method-assign]  # it does not know
    scene.world.move(scene.state_key, follower)
    scene.world.run(15)
    del toy._leads
    assert asked
    scene.world.run(100)
    assert not scene.leaves()
    scene.producer.finish(scene.producer.transaction(KEYS))


# -- coordinators of the past


def test_a_coordinator_that_may_not_read_says_nothing_more() -> None:
    scene = Scene()
    for broker in scene.world.brokers.values():
        broker.heard = Epoch(7)
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.until(lambda: scene.world.coordinator.stopped is not None)


def test_a_coordinator_that_may_not_mark_one_producer_goes_on() -> None:
    """An operator may have ended that one's transaction under an epoch of his own."""
    scene = Scene()
    leader = scene.world.partitions[KEYS[0]].leader
    assert leader is not None
    assert leader != scene.state_leader()

    def late() -> None:
        scene.world.brokers[leader].heard = Epoch(7)

    scene.world.on_committed = late
    scene.producer.live(scene.producer.transaction(KEYS[:1]))
    scene.world.run(1_000)
    assert scene.world.coordinator.stopped is None
    assert 5 < len(scene.sent(Mark)) < 15
    scene.world.on_committed = lambda: None
    scene.world.brokers[leader].heard = Epoch(1)
    scene.world.until(lambda: scene.producer.is_over)


def test_a_coordinator_that_hears_of_a_later_one_says_nothing_more() -> None:
    scene = Scene()
    process, machine = scene.world.coordinator, scene.world.coordinator.machine
    assert machine is not None
    scene.world.decide(TransactionsActivated(Epoch(2), Incarnation(9)))
    scene.world.until(lambda: process.stopped is not None)
    assert process.stopped == "there is a transaction coordinator of epoch 2 or later"
    assert machine.deadline() is None
    hello = BrokerUp(BrokerId(0), Incarnation(1), 1_000)
    assert list(machine.step(scene.world.now, hello)) == []


def test_a_coordinator_whose_append_is_refused_for_a_later_one_says_nothing_more() -> None:
    scene = Scene()
    zombie = scene.world.coordinator
    zombie.stand_still()
    later = scene.world.start_coordinator()
    scene.world.run(50)
    assert later.machine is not None
    scene.said.clear()
    zombie.go_on()
    scene.world.run(50)
    assert zombie.stopped is not None
    assert later.stopped is None


def test_what_was_refused_for_a_later_coordinator_stops_it_at_once() -> None:
    scene = Scene()
    machine = scene.world.coordinator.machine
    assert machine is not None
    for broker in scene.world.brokers.values():
        broker.heard = Epoch(7)
    scene.forward(k22.API, 4, INIT)
    scene.world.run(5)
    assert scene.world.coordinator.stopped == (
        "there is a newer transaction coordinator: TRANSACTION_COORDINATOR_FENCED"
    )
    assert not any(isinstance(one, Stop) for one in machine.start(scene.world.now))
