"""What brokers pass on, from the frame to the answer: deadlines, connections, lists, waiting."""

from typing import Any

import pytest

from harness.machines.toy_transaction_logs import End
from harness.machines.transaction_scenes import KEYS, Asked, Scene
from harness.simulation.living import Life
from tidelog.coordinator.transactions.events import (
    BrokerDown,
    BrokerUp,
    IdsRefused,
    Received,
    SendTo,
    TransactionTimedOut,
)
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Append,
    Appended,
    Chunk,
    Failed,
    Forward,
    Hello,
    Marked,
    Welcome,
)

E = ErrorCode
ZERO = BrokerId(0)


def init(name: str = "tx", timeout_ms: int = 1_000) -> k22.InitProducerIdRequest:
    return k22.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)


def passed_on(scene: Scene, *, wait_ms: float = 1_000, **fields: Any) -> list[object]:
    """What one Forward brings about, and how it is answered when all is done."""
    scene.said.clear()
    toy = scene.world.brokers[ZERO]
    known = {
        "to": toy.coordinator,
        "call": toy.session + 1_000,
        "client": Client("", "", ""),
        "deadline": Instant(scene.world.now + ms(wait_ms)),
        "frame": b"no frame",
        **fields,
    }
    scene.world.coordinator.step(Received(ZERO, Forward(**known)))
    scene.world.run(20)
    return [message for _, _, message in scene.said]


def test_what_is_no_frame_of_ours_is_refused_as_a_whole() -> None:
    scene = Scene()
    toy = scene.world.brokers[ZERO]
    refused = Failed(toy.session, toy.session + 1_000, E.INVALID_REQUEST)
    assert passed_on(scene) == [refused]


def test_nothing_is_decided_for_who_does_not_wait_any_more() -> None:
    scene = Scene()
    assert passed_on(scene, wait_ms=0) == []
    assert passed_on(scene, wait_ms=-1) == []


def test_nothing_is_decided_that_was_asked_over_an_earlier_connection() -> None:
    scene = Scene()
    scene.world.reconnect(scene.world.brokers[ZERO])
    scene.world.run(10)
    assert passed_on(scene, call=1) == []


def test_nothing_is_decided_that_is_meant_for_another_life() -> None:
    scene = Scene()
    assert passed_on(scene, to=Incarnation(7)) == []


def test_nothing_is_heard_of_a_broker_that_has_not_said_who_it_is() -> None:
    scene = Scene()
    machine = scene.world.coordinator.machine
    assert machine is not None
    machine.step(scene.world.now, BrokerDown(ZERO, Incarnation(1)))
    assert passed_on(scene) == []
    assert (
        list(machine.step(scene.world.now, Received(ZERO, Hello(5, "", ZERO, Incarnation(1)))))
        == []
    )


def test_the_end_of_an_earlier_life_is_not_that_of_this_one() -> None:
    scene = Scene()
    machine = scene.world.coordinator.machine
    assert machine is not None
    machine.step(scene.world.now, BrokerDown(ZERO, Incarnation(0)))
    assert len(passed_on(scene)) == 1


def test_more_calls_than_the_bound_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinator.transactions.questions.TRANSACTION_CALLS_MAX", 2)
    scene = Scene()
    scene.world.frozen.add(scene.state_key)
    asked = [scene.forward(k22.API, 4, init()) for _ in range(3)]
    assert [one.answer() for one in asked] == [None, None, E.COORDINATOR_NOT_AVAILABLE]


def test_more_decisions_than_the_bound_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tidelog.coordinator.transactions.state_partition.TRANSACTION_APPENDS_QUEUED_MAX", 3
    )
    scene = Scene()
    scene.world.frozen.add(scene.state_key)
    asked = [scene.forward(k22.API, 4, init()) for _ in range(10)]
    scene.world.run(5)
    turned_away = [one.answer() for one in asked if one.answer() is not None]
    assert [one.error_code for one in turned_away] == [E.COORDINATOR_NOT_AVAILABLE] * 2
    assert len(scene.sent(Append)) == 1 + 5  # the first is of before


def test_what_waits_for_the_log_goes_into_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tidelog.coordinator.transactions.state_partition.TRANSACTION_APPENDS_IN_FLIGHT_MAX", 1
    )
    scene = Scene()
    scene.said.clear()
    asked = [scene.forward(k22.API, 4, init()) for _ in range(10)]
    scene.world.run(10)
    assert [one.answer().producer_epoch for one in asked] == list(range(1, 11))
    assert len(scene.sent(Append)) == 2


def test_an_answer_goes_to_the_connection_that_asked_or_to_nobody() -> None:
    scene = Scene()
    asked = scene.forward(k22.API, 4, init())
    scene.world.reconnect(scene.world.brokers[ZERO])
    scene.world.run(50)
    assert asked.answer() is None
    assert scene.another("tx").identity[1] >= 2, "it was decided"


def test_what_waits_is_not_decided_when_its_connection_is_gone() -> None:
    scene = Scene()
    scene.world.frozen.add(scene.state_key)
    scene.restart_coordinator()
    scene.forward(k22.API, 4, init())
    scene.world.reconnect(scene.world.brokers[ZERO])
    scene.world.run(10)
    scene.world.frozen.clear()
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.run(200)
    assert scene.another("tx").identity[1] == 1


# -- producer ids


def test_a_producer_waits_for_an_id_that_is_on_its_way() -> None:
    scene = Scene()
    stock = scene.world.coordinator.machine
    assert stock is not None
    ids = stock._around.producer_ids
    while ids.take() is not None:
        pass
    asked = scene.forward(k22.API, 4, init("new"))
    assert asked.answer() is None
    scene.world.run(5)
    assert asked.answer().error_code == E.NONE


def test_where_the_controller_has_no_ids_it_is_asked_again() -> None:
    scene = Scene()
    process, machine = scene.world.coordinator, scene.world.coordinator.machine
    assert machine is not None
    while machine._around.producer_ids.take() is not None:
        pass
    give, refusals = process._give_ids, 2

    def refuse() -> None:
        nonlocal refusals
        refusals -= 1
        process.step(IdsRefused(E.NOT_CONTROLLER))
        if not refusals:
            process._give_ids = give  # type: ignore[method-assign]  # as it was

    process._give_ids = refuse  # type: ignore[method-assign]  # it is away
    asked = scene.forward(k22.API, 4, init("new"))
    scene.world.run(150)
    assert asked.answer() is None
    scene.world.run(100)
    assert asked.answer().error_code == E.NONE


# -- lists


def names(asked: Asked) -> set[str]:
    return {one.transactional_id for one in asked.answer().transaction_states}


def test_each_broker_hears_of_the_ids_whose_partition_it_leads() -> None:
    scene = Scene()
    producers = [scene.producer, *(scene.another(f"id {number}") for number in range(10))]
    request = k66.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    asked = [scene.forward(k66.API, 2, request, by=broker) for broker in range(3)]
    scene.world.run(5)
    leaders = {
        key[1]: partition.leader
        for key, partition in scene.world.partitions.items()
        if key[0] == STATE_TOPIC
    }
    for broker, one in enumerate(asked):
        expected = {
            producer.transactional_id
            for producer in producers
            if leaders[producer.state_key[1]] == broker
        }
        assert names(one) == expected


def test_a_list_with_an_expression_that_is_none_is_refused() -> None:
    scene = Scene()
    request = k66.ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="("
    )
    asked = scene.forward(k66.API, 2, request)
    assert asked.answer().error_code == E.INVALID_REGULAR_EXPRESSION


def test_a_broker_that_leads_nothing_hears_of_nothing() -> None:
    scene = Scene(state_partitions=1)
    leader = scene.state_leader()
    request = k66.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    asked = scene.forward(k66.API, 2, request, by=(leader + 1) % 3)
    assert (asked.answer().error_code, names(asked)) == (0, set())


def test_ids_are_described_each_by_its_partition() -> None:
    scene = Scene()
    scene.another("other")
    request = k65.DescribeTransactionsRequest(transactional_ids=["tx", "nobody", "other"])
    asked = scene.forward(k65.API, 0, request)
    scene.world.run(5)
    found = asked.answer().transaction_states
    assert [one.transactional_id for one in found] == ["tx", "nobody", "other"]
    assert [one.error_code for one in found] == [0, E.TRANSACTIONAL_ID_NOT_FOUND, 0]


def test_nothing_asked_is_answered_at_once() -> None:
    scene = Scene()
    asked = scene.forward(k65.API, 0, k65.DescribeTransactionsRequest(transactional_ids=[]))
    assert asked.answer().transaction_states == []


# -- time


def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_locked_out() -> None:
    scene = Scene()
    producer = scene.producer
    producer.finish(producer.init(timeout_ms=500))
    transaction = producer.begin()

    def life() -> Life:
        yield from producer.add(transaction, *KEYS)
        for key in KEYS:
            yield from producer.write(transaction, key)

    producer.finish(life())
    scene.world.run(600)
    (told,) = [what for _, what in scene.world.happened if isinstance(what, TransactionTimedOut)]
    assert told.transactional_id == "tx"
    assert 500 <= told.open_ms < 510
    another = scene.another("tx")
    assert another.identity == (transaction.producer_id, transaction.producer_epoch + 2)
    another.finish(another.transaction(KEYS))
    scene.world.run(50)
    logs = [scene.world.partitions[key].committed for key in KEYS]
    found = [[one.committed for one in log if isinstance(one, End)] for log in logs]
    assert found == [[False, True]] * 2
    machine = scene.world.coordinator.machine
    assert machine is not None
    assert (machine.committed, machine.aborted, machine.open_transactions) == (1, 1, 0)


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    scene = Scene()
    before = scene.producer.identity
    scene.world.run(60_000)
    request = k65.DescribeTransactionsRequest(transactional_ids=["tx"])
    asked = scene.forward(k65.API, 0, request)
    scene.world.run(20_000)
    assert asked.answer().transaction_states[0].error_code == 0
    asked = scene.forward(k65.API, 0, request)
    scene.world.run(10)
    assert asked.answer().transaction_states[0].error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert scene.another("tx").identity != before


def test_the_first_transaction_of_a_cluster_waits_for_the_topic_alone() -> None:
    scene = Scene(state_partitions=0)
    asked = scene.forward(k22.API, 4, init())
    assert asked.answer().error_code == E.COORDINATOR_NOT_AVAILABLE
    request = k66.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    assert names(scene.forward(k66.API, 2, request)) == set()
    scene.world.create(STATE_TOPIC, 50)
    scene.producer.finish(scene.producer.init(), within_ms=50)
    scene.producer.finish(scene.producer.transaction(KEYS), within_ms=50)
    assert {code for _, code in scene.producer.codes} == {E.NONE}


def test_where_the_topic_is_another_one_everything_begins_anew() -> None:
    """Nobody may delete it. Whoever does finds a coordinator that goes on all the same."""
    scene = Scene()
    scene.world.delete(STATE_TOPIC)
    scene.world.run(5)
    asked = scene.forward(k22.API, 4, init())
    assert asked.answer().error_code == E.COORDINATOR_NOT_AVAILABLE
    scene.world.create(STATE_TOPIC, 4)
    scene.world.run(10)
    assert scene.another("tx").identity[1] == 0


def test_an_invalid_part_is_refused_and_the_others_are_not() -> None:
    scene = Scene()
    request = k65.DescribeTransactionsRequest(transactional_ids=["", "tx"])
    asked = scene.forward(k65.API, 0, request)
    scene.world.run(5)
    codes = [one.error_code for one in asked.answer().transaction_states]
    assert codes == [E.INVALID_REQUEST, E.NONE]


def test_a_hello_that_comes_late_is_not_listened_to() -> None:
    scene = Scene()
    machine = scene.world.coordinator.machine
    assert machine is not None
    known = machine._around.sessions[ZERO]
    for late in (known.session, known.session - 1):
        assert not machine.step(scene.world.now, BrokerUp(ZERO, known.incarnation, late))
    welcome, *_ = machine.step(scene.world.now, BrokerUp(ZERO, Incarnation(2), 1))
    assert isinstance(welcome, SendTo)
    assert isinstance(welcome.message, Welcome)


def test_a_message_that_answers_nothing_changes_nothing() -> None:
    scene = Scene()
    machine, now = scene.world.coordinator.machine, scene.world.now
    assert machine is not None
    life = scene.world.coordinator.incarnation
    none = Offset(-1)
    for message in (
        Marked(life, 1 << 40, (E.NONE,)),
        Appended(life, 1 << 40, E.NONE, Offset(5)),
        Chunk(life, 1 << 40, E.NONE, none, none, 0, none, b""),
        Appended(life, (1 << 40) + 9_999, E.NONE, Offset(5)),
    ):
        assert not machine.step(now, Received(ZERO, message))
    scene.producer.finish(scene.producer.transaction(KEYS))


def test_two_producers_wait_for_their_ends_each_for_its_own_time() -> None:
    scene = Scene()
    producers = (scene.producer, scene.another("other"))
    for producer in producers:
        transaction = producer.begin()
        producer.finish(producer.add(transaction, KEYS[0]))
        producer.finish(producer.write(transaction, KEYS[0]))
    scene.world.frozen.add(KEYS[0])
    began = []
    for producer in producers:
        began.append(scene.world.now)
        producer.live(producer.end(producer.transactions[-1], committed=False))
        scene.world.run(50)
    for producer, at in zip(producers, began, strict=True):
        scene.world.until(lambda producer=producer: producer.is_over)  # type: ignore[misc]  # of this turn
        assert 100 <= (scene.world.now - at) / 1e6 < 105
