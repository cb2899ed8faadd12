"""What the transaction coordinator tells leaders unasked: when, whom, and what that lets in."""

from pathlib import Path

import pytest

from harness.machines.brokers import HandlerBench, led_here
from harness.machines.transaction_bench import (
    PRODUCER,
    answer,
    codes,
    end_transaction,
    ended,
    log_of,
    start_producing,
    transactional,
)
from harness.machines.transaction_scenes import KEYS, Scene
from tidelog.kernel.ids import Epoch, Partition, ProducerEpoch, ProducerId
from tidelog.kernel.limits import TRANSACTION_ADMITS_UNHEARD_MAX
from tidelog.node.transactions.admissions import Admissions
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.metadata_records import PartitionChanged
from tidelog.wire.transactions import Admit, Admitted, Answered, Mark

# -- what the coordinator says


def adding(scene: Scene) -> None:
    """The producer begins a transaction with both partitions."""
    scene.said.clear()
    transaction = scene.producer.begin()
    scene.producer.live(scene.producer.add(transaction, *KEYS))


def test_each_leader_is_told_once_before_the_producer_hears_that_its_partitions_are_added() -> None:
    scene = Scene(brokers=3)
    adding(scene)
    scene.world.until(lambda: scene.producer.is_over)
    told = {
        (one.topic, one.partition): (broker, one.leader_epoch)
        for _, broker, message in scene.said
        if isinstance(message, Admit)
        for one in message.partitions
    }
    assert told == {
        key: (scene.world.partitions[key].leader, scene.world.partitions[key].epoch) for key in KEYS
    }
    kinds = [type(message) for _, _, message in scene.said]
    assert kinds.index(Answered) > max(at for at, kind in enumerate(kinds) if kind is Admit)
    who = {(one.producer_id, one.producer_epoch) for one in scene.sent(Admit)}
    assert who == {scene.producer.identity}


def test_nobody_is_told_before_the_log_holds_the_partition() -> None:
    """Who coordinates next would not know of it, and end it nowhere."""
    scene = Scene(brokers=3)
    scene.world.frozen.add(scene.state_key)
    adding(scene)
    scene.world.run(20)
    assert not scene.sent(Admit)
    scene.world.frozen.clear()
    scene.world._follow(scene.world.partitions[scene.state_key])
    scene.world.until(lambda: scene.producer.is_over)
    assert scene.sent(Admit)


def test_it_goes_out_before_the_marker_of_its_transaction() -> None:
    scene = Scene(brokers=1)
    scene.said.clear()
    scene.producer.finish(scene.producer.transaction(KEYS))
    kinds = [type(message) for _, _, message in scene.said]
    assert max(at for at, kind in enumerate(kinds) if kind is Admit) < kinds.index(Mark)


def test_what_is_refused_is_told_nobody() -> None:
    scene = Scene(brokers=1)
    scene.said.clear()
    known = scene.producer.identity
    request = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=known[0],
        v3_and_below_producer_epoch=known[1] + 1,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="t0", partitions=[0])],
    )
    asked = scene.forward(k24.API, 3, request)
    scene.world.run(20)
    assert asked.answer().results_by_topic_v3_and_below[0].results_by_partition[0]
    assert not scene.sent(Admit)


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_broker_that_asks_for_itself_is_told_nothing_but_the_answer(*, verify_only: bool) -> None:
    scene = Scene(brokers=1)
    adding(scene)
    scene.world.until(lambda: scene.producer.is_over)
    scene.said.clear()
    transaction = k24.AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=scene.producer.identity[0],
        producer_epoch=scene.producer.identity[1],
        verify_only=verify_only,
        topics=[k24.AddPartitionsToTxnTopic(name="t0", partitions=[0])],
    )
    scene.forward(k24.API, 4, k24.AddPartitionsToTxnRequest(transactions=[transaction]))
    scene.world.run(20)
    assert len(scene.sent(Answered)) == 1
    assert not scene.sent(Admit)


def test_a_partition_without_a_leader_costs_a_question_later() -> None:
    scene = Scene(brokers=3)
    scene.lose_leader(KEYS[0])
    adding(scene)
    scene.world.until(lambda: scene.producer.is_over)
    assert [(row.topic, row.partition) for one in scene.sent(Admit) for row in one.partitions] == [
        KEYS[1]
    ]


def test_a_broker_that_answers_nothing_is_told_no_more() -> None:
    """There is a bound on what nobody confirms; an answer to a Mark shows that all was heard."""
    scene = Scene(brokers=1)
    admissions = scene.world.coordinator.machine._admissions  # type: ignore[union-attr]  # it runs
    (session,) = admissions._around.sessions.values()
    admissions._unheard[session.broker] = (session, TRANSACTION_ADMITS_UNHEARD_MAX)
    adding(scene)
    scene.world.until(lambda: scene.producer.is_over)
    assert not scene.sent(Admit)
    admissions._unheard[session.broker] = (session, TRANSACTION_ADMITS_UNHEARD_MAX - 1)
    transaction = scene.producer.transactions[-1]
    scene.producer.finish(scene.producer.add(transaction, ("t0", Partition(1)), KEYS[0]))
    (told,) = scene.sent(Admit)
    assert len(told.partitions) == 1, "one more is within the bound"
    scene.producer.finish(scene.producer.end(scene.producer.transactions[-1], committed=True))
    adding(scene)
    scene.world.until(lambda: scene.producer.is_over)
    assert scene.sent(Admit)


# -- what a broker does with it


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", 2)
    return bench


def admit(bench: HandlerBench, *, epoch: int = 0, leader_epoch: int = 0, topic: str = "t") -> None:
    admissions = Admissions(bench.broker.replicas, bench.broker.on_storage_failure)
    places = (Admitted(topic, 0, Epoch(leader_epoch)),)
    who = (ProducerId(PRODUCER), ProducerEpoch(epoch))
    admissions.take(Admit(1, Epoch(1), *who, places))


def test_who_was_told_takes_the_first_batch_without_a_question(bench: HandlerBench) -> None:
    admit(bench)
    asked = start_producing(bench, ("t", 0, transactional()))
    assert ended(asked.answer()) is ErrorCode.NONE
    assert not bench.transactions.forwarded


def test_only_of_the_partitions_that_nobody_spoke_of_it_asks(bench: HandlerBench) -> None:
    admit(bench)
    asked = start_producing(bench, ("t", 0, transactional()), ("t", 1, transactional()))
    answer(bench)
    assert codes(asked.answer()) == [ErrorCode.NONE, ErrorCode.NONE]
    assert len(bench.transactions.forwarded) == 1


@pytest.mark.parametrize("written", [False, True])
def test_with_the_marker_the_word_is_gone(bench: HandlerBench, *, written: bool) -> None:
    """A batch that comes late must not begin what nobody ends."""
    admit(bench)
    if written:
        start_producing(bench, ("t", 0, transactional()))
    end_transaction(bench, committed=False)
    late = start_producing(bench, ("t", 0, transactional(1 if written else 0)))
    assert late.answer() is None
    answer(bench, ErrorCode.TRANSACTION_ABORTABLE)
    assert ended(late.answer()) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_word_for_another_epoch_of_the_producer_lets_nothing_in(bench: HandlerBench) -> None:
    admit(bench, epoch=1)
    asked = start_producing(bench, ("t", 0, transactional()))
    assert asked.answer() is None


def test_a_word_for_another_leader_epoch_is_not_kept(bench: HandlerBench) -> None:
    admit(bench, leader_epoch=1)
    admit(bench, topic="unknown")
    asked = start_producing(bench, ("t", 0, transactional()))
    assert asked.answer() is None


def test_a_word_ends_with_the_leader_epoch(bench: HandlerBench) -> None:
    admit(bench)
    again = led_here(leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(bench.image.names["t"].id, Partition(0), again))
    asked = start_producing(bench, ("t", 0, transactional()))
    assert asked.answer() is None


def test_the_word_for_the_next_transaction_is_none_for_who_asked_in_the_last(
    bench: HandlerBench,
) -> None:
    late = start_producing(bench, ("t", 0, transactional()))
    end_transaction(bench, committed=False)
    admit(bench)
    answer(bench)
    assert ended(late.answer()) is ErrorCode.INVALID_TXN_STATE


def test_a_later_batch_does_not_pass_the_one_that_waits(bench: HandlerBench) -> None:
    first = start_producing(bench, ("t", 0, transactional()))
    admit(bench)
    later = start_producing(bench, ("t", 0, transactional(1)))
    assert ended(later.answer()) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    answer(bench)
    assert ended(first.answer()) is ErrorCode.NONE
    assert log_of(bench).end == 1


def test_a_no_is_for_who_asked(bench: HandlerBench) -> None:
    """It was said of another moment; the marker will come."""
    asked = start_producing(bench, ("t", 0, transactional()))
    admit(bench)
    answer(bench, ErrorCode.TRANSACTION_ABORTABLE)
    assert ended(asked.answer()) is ErrorCode.TRANSACTION_ABORTABLE
    again = start_producing(bench, ("t", 0, transactional()))
    assert ended(again.answer()) is ErrorCode.NONE
