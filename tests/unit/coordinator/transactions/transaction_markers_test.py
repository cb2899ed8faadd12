"""Markers on their way: to whom, under which leader, once; and what becomes of who waits."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from harness.machines.toy_brokers import ToyBroker
from harness.machines.toy_producers import ToyProducer
from harness.machines.toy_transaction_logs import End, end_offset, writer_of
from harness.machines.transaction_scenes import KEYS, Scene
from harness.simulation.living import Life
from tidelog.coordinator.transactions import markers as markers_module
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.records import TxnRecord
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.transactions import Append, Mark, Marked, Marker

E = ErrorCode


def written(scene: Scene, *keys: TopicPartition) -> None:
    """A transaction that is open."""
    producer = scene.producer

    def life() -> Life:
        transaction = producer.begin()
        yield from producer.add(transaction, *keys)
        for key in keys:
            yield from producer.write(transaction, key)

    producer.finish(life())
    scene.said.clear()


def end(scene: Scene) -> None:
    transaction = scene.producer.transactions[-1]
    scene.producer.live(scene.producer.end(transaction, committed=True))


def markers(scene: Scene) -> list[Marker]:
    return [one for message in scene.sent(Mark) for one in message.markers]


def ends(scene: Scene, key: TopicPartition) -> list[bool]:
    log = scene.world.partitions[key].committed
    return [one.committed for one in log if isinstance(one, End)]


def refuse(scene: Scene, monkeypatch: pytest.MonkeyPatch, codes: list[ErrorCode]) -> None:
    """The next markers are answered with these, and not written."""
    write: Callable[..., None] = ToyBroker._write_marker

    def instead(
        self: ToyBroker, request: Mark, marker: Marker, settle: Callable[[ErrorCode], None]
    ) -> None:
        if codes:
            settle(codes.pop(0))
        else:
            write(self, request, marker, settle)

    monkeypatch.setattr(ToyBroker, "_write_marker", instead)
    assert scene.world.coordinator.alive


def test_nothing_goes_out_before_the_log_holds_the_outcome() -> None:
    scene = Scene()
    written(scene, *KEYS)
    scene.world.frozen.add(scene.state_key)
    end(scene)
    scene.world.run(20)
    assert len(scene.sent(Append)) == 1
    assert not scene.sent(Mark)
    scene.world.frozen.clear()
    scene.world.move(scene.state_key, scene.another_replica(scene.state_key))
    scene.world.run(200)
    assert [ends(scene, key) for key in KEYS] == [[True], [True]]


def test_the_producer_hears_of_the_end_before_the_log_holds_that_it_is_complete() -> None:
    """And is not turned away with its next transaction."""
    scene = Scene()
    written(scene, *KEYS)
    end(scene)
    scene.world.until(lambda: len(scene.sent(Append)) == 2)
    scene.world.frozen.add(scene.state_key)  # the record that it is complete goes nowhere
    scene.world.until(lambda: scene.producer.is_over, within_ms=10)
    transaction = scene.producer.begin()
    scene.producer.live(scene.producer.add(transaction, KEYS[0]))
    scene.world.run(5)
    assert not scene.producer.is_over
    scene.world.frozen.clear()
    scene.world._follow(scene.world.partitions[scene.state_key])
    scene.world.until(lambda: scene.producer.is_over, within_ms=10)
    assert {code for _, code in scene.producer.codes} == {E.NONE}


def test_a_partition_that_nobody_leads_gets_its_marker_when_somebody_does() -> None:
    scene = Scene()
    written(scene, *KEYS)
    scene.lose_leader(KEYS[0])
    end(scene)
    began = scene.world.now
    scene.world.until(lambda: scene.producer.is_over)
    waited_ms = (scene.world.now - began) / 1e6
    assert 100 <= waited_ms < 110, "its outcome is certain: it waits no longer than this"
    assert [ends(scene, key) for key in KEYS] == [[], [True]]
    scene.said.clear()
    transaction = scene.producer.begin()
    scene.producer.live(scene.producer.add(transaction, KEYS[1]))
    scene.world.run(10)
    assert scene.producer.codes[-1] == ("AddPartitionsToTxn", E.CONCURRENT_TRANSACTIONS)
    scene.give_leader(KEYS[0])
    (marker,) = markers(scene)
    assert (marker.topic, marker.partition, marker.leader_epoch) == ("t0", 0, 2)
    scene.world.until(lambda: scene.producer.is_over)
    assert [ends(scene, key) for key in KEYS] == [[True], [True]]


def test_who_asks_the_next_coordinator_for_an_end_that_is_decided_waits_for_it_there() -> None:
    """Its answer went with the one that died. Turned away, it would come back much later."""
    scene = Scene()
    written(scene, *KEYS)
    scene.world.frozen.add(KEYS[0])
    end(scene)
    scene.world.until(lambda: len(markers(scene)) == 2)
    scene.restart_coordinator()
    scene.world.run(50)
    assert not scene.producer.is_over
    scene.world.frozen.clear()
    scene.world._follow(scene.world.partitions[KEYS[0]])
    scene.world.until(lambda: scene.producer.is_over, within_ms=10)
    assert E.CONCURRENT_TRANSACTIONS not in {code for _, code in scene.producer.codes}
    assert [ends(scene, key) for key in KEYS] == [[True], [True]]


def test_a_marker_under_way_goes_to_the_next_leader_too_and_is_there_once() -> None:
    scene = Scene()
    written(scene, KEYS[0])
    scene.world.frozen.add(KEYS[0])
    end(scene)
    scene.world.run(20)
    assert len(markers(scene)) == 1
    scene.world.frozen.clear()
    scene.world.move(KEYS[0], scene.another_replica(KEYS[0]))
    scene.world.run(50)
    first, second = markers(scene)
    assert (first.leader_epoch, second.leader_epoch) == (0, 1)
    assert ends(scene, KEYS[0]) == [True]


def test_a_marker_that_is_not_answered_is_not_sent_again() -> None:
    scene = Scene()
    written(scene, KEYS[0])
    scene.world.frozen.add(KEYS[0])
    end(scene)
    scene.world.run(60_000)
    assert len(markers(scene)) == 1


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,  # a leader that was started again has not heard of it yet
    ],
)
def test_a_marker_that_was_refused_is_sent_again_after_a_while(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    written(scene, KEYS[0])
    refuse(scene, monkeypatch, [code, code])
    end(scene)
    scene.world.run(50)
    assert len(markers(scene)) == 1
    scene.world.run(400)
    assert len(markers(scene)) == 3
    assert ends(scene, KEYS[0]) == [True]


def test_a_marker_that_was_refused_goes_to_another_leader_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    written(scene, KEYS[0])
    refuse(scene, monkeypatch, [E.NOT_LEADER_OR_FOLLOWER])
    end(scene)
    scene.world.run(10)
    scene.world.move(KEYS[0], scene.another_replica(KEYS[0]))
    scene.world.run(10)
    assert ends(scene, KEYS[0]) == [True]
    scene.world.run(500)
    assert len(markers(scene)) == 2


def test_where_the_producer_has_a_later_epoch_its_transaction_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    written(scene, *KEYS)
    refuse(scene, monkeypatch, [E.INVALID_PRODUCER_EPOCH])
    end(scene)
    scene.world.run(20)
    assert scene.producer.is_over
    assert len(markers(scene)) == 2


def test_an_answer_about_other_markers_than_were_sent_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    written(scene, KEYS[0])
    say = ToyBroker._say
    lies = 1

    def instead(self: ToyBroker, message: object) -> None:
        nonlocal lies
        if isinstance(message, Marked) and lies:
            lies -= 1
            message = Marked(message.to, message.call, (E.NONE, E.NONE))
        say(self, message)  # type: ignore[arg-type]  # as it is called there

    monkeypatch.setattr(ToyBroker, "_say", instead)
    end(scene)
    scene.world.run(50)
    assert len(markers(scene)) == 1
    scene.world.run(200)
    assert len(markers(scene)) == 2
    assert scene.producer.is_over


def test_what_many_transactions_owe_one_broker_goes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markers_module, "TRANSACTION_MARKS_IN_FLIGHT_MAX", 1)
    monkeypatch.setattr(markers_module, "TRANSACTION_MARKERS_PER_MESSAGE_MAX", 3)
    scene = Scene()
    producers = [scene.another(f"id {number}") for number in range(6)]
    scene.said.clear()
    for producer in producers:
        producer.live(producer.transaction(KEYS[:1]))
    scene.world.run(50)
    sizes = [len(one.markers) for one in scene.sent(Mark)]
    assert sum(sizes) == 6
    assert max(sizes) == 3
    assert len(sizes) < 6


def test_a_wide_transaction_gives_a_broker_no_more_markers_than_fit_into_a_turn() -> None:
    """A broker writes all that it was sent at a time in one turn of its loop."""
    scene = Scene(topics=1, partitions=6_000)
    asked = scene.forward(
        k22.API,
        4,
        k22.InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=60_000),
    )
    scene.world.run(50)
    who = asked.answer()
    topic = k24.AddPartitionsToTxnTopic(name="t0", partitions=list(range(6_000)))
    adding = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wide",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[topic],
    )
    scene.forward(k24.API, 3, adding)
    scene.world.run(50)
    ending = k26.EndTxnRequest(
        transactional_id="wide",
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=True,
    )
    scene.forward(k26.API, 4, ending)
    scene.world.run(500)
    sent: dict[tuple[Instant, BrokerId], int] = {}
    for at, broker, message in scene.said:
        if isinstance(message, Mark):
            sent[at, broker] = sent.get((at, broker), 0) + len(message.markers)
    assert sum(sent.values()) == 6_000
    assert max(sent.values()) <= 1_000


# -- topics that are gone, or new


def test_a_deleted_topic_is_owed_nothing() -> None:
    scene = Scene()
    written(scene, *KEYS)
    scene.world.delete("t0")
    scene.world.run(5)
    end(scene)
    scene.world.run(20)
    assert scene.producer.is_over
    assert [one.topic for one in markers(scene)] == ["t1"]


def test_a_topic_that_is_deleted_while_its_marker_waits_is_owed_nothing() -> None:
    scene = Scene()
    written(scene, *KEYS)
    scene.lose_leader(KEYS[0])
    end(scene)
    scene.world.run(20)
    scene.world.delete("t0")
    scene.world.run(20)
    assert scene.producer.is_over
    scene.producer.finish(scene.producer.transaction(KEYS[1:]))


def test_a_new_coordinator_takes_a_topic_for_deleted_once_its_image_is_newer_than_the_log() -> None:
    scene = Scene()
    written(scene, *KEYS)
    scene.lose_leader(KEYS[0])
    end(scene)
    scene.world.run(20)
    ids = scene.world.image.producer_id_next
    scene.restart_coordinator(lambda: scene.world.delete("t0"))
    scene.world.run(50)
    scene.producer.finish(scene.producer.transaction(KEYS[1:]))
    assert scene.world.image.producer_id_next > ids
    assert {one.topic for one in markers(scene)} == {"t1"}


def test_a_new_coordinator_waits_for_a_topic_that_its_log_knows_and_its_image_does_not() -> None:
    """Its image is older than the log: the topic's creation is not heard of yet. Taken for deleted,
    the topic would never get its marker, and nobody could read on."""
    scene = Scene()
    world, key = scene.world, ("new", Partition(0))
    scene.producer.finish(scene.producer.transaction(KEYS))
    world.run(20)
    prepare(scene, key)
    after = world.start_coordinator()
    world.until(lambda: after.machine is not None)
    world.deaf = after.image
    ids = world.image.producer_id_next
    world.run(1_000)
    assert scene.state_key[1] in scene.loads()
    assert world.image.producer_id_next > ids, "it has asked for a proof, and has not seen it"
    assert state_of(scene) == "PrepareCommit"
    world.deaf = None
    world.create("new", 1)  # what it hears of this brings it up to date
    world.run(50)
    assert ends(scene, key) == [True]
    assert state_of(scene) == "CompleteCommit"


def prepare(scene: Scene, key: TopicPartition) -> None:
    """The coordinator dies with this as its last word: the transaction has that partition."""
    process, partition = scene.world.coordinator, scene.world.partitions[scene.state_key]
    assert process.machine is not None
    place = process.machine.partition(scene.state_key[1])
    assert place is not None
    assert place.shard is not None
    known = place.shard._ids["tx"]
    prepared = replace(known, state=TxnState.PREPARE_COMMIT, partitions=frozenset({key}))
    scene.world.kill_coordinator(process)
    scene.said.clear()
    leader = scene.state_leader()
    _, sequence = writer_of(partition.logs[leader])
    pair = records.pair(TxnRecord("tx", prepared))
    batch = records.batch_of([pair], 0, epoch=process.epoch, sequence=sequence)
    partition.append(leader, rebased(batch, end_offset(partition.logs[leader])))
    scene.world.appended(partition, leader)


def rebased(batch: bytes, offset: int) -> bytes:
    """With its place in the log, as a leader sets it; its checksum does not cover that."""
    return offset.to_bytes(8, "big") + batch[8:]


def state_of(scene: Scene) -> str:
    asked = scene.forward(k65.API, 0, k65.DescribeTransactionsRequest(transactional_ids=["tx"]))
    scene.world.run(10)
    (described,) = asked.answer().transaction_states
    return str(described.transaction_state)


def test_partitions_wait_until_the_coordinator_has_heard_of_them() -> None:
    """Taken for deleted, they would never get their markers."""
    scene = Scene()
    scene.world.deaf = scene.world.coordinator.image
    scene.world.create("new", 1)
    scene.world.run(10)
    scene.world.deaf = None
    key = ("new", Partition(0))
    transaction = scene.producer.begin()
    request = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.producer_epoch,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="new", partitions=[0])],
    )
    late = scene.forward(k24.API, 3, request)
    scene.world.run(310)
    (row,) = late.answer().results_by_topic_v3_and_below
    assert row.results_by_partition[0].partition_error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    waits = scene.forward(k24.API, 3, request)
    scene.world.create("another", 1)  # what it hears of this brings it up to date
    scene.world.run(10)
    (row,) = waits.answer().results_by_topic_v3_and_below
    assert row.results_by_partition[0].partition_error_code == E.NONE

    def rest(producer: ToyProducer) -> Life:
        yield from producer.write(transaction, key)
        yield from producer.end(transaction, committed=True)

    scene.producer.finish(rest(scene.producer))
    assert ends(scene, key) == [True]
