"""Named scenarios 5.13 to 5.16, and who else may come late: transactions in a simulated cluster."""

from collections.abc import Callable

import msgspec
import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.living import Life
from harness.simulation.transaction_kills import DATA, OFFSETS, STATE, Killing, markers_in, steps_of
from harness.simulation.transaction_scene import TransactionScene
from harness.simulation.transaction_truth import entries_of
from harness.simulation.transactional import END, PRODUCE, TransactionalClient, produce
from harness.simulation.transactor import TransactionProcess
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.events import TransactionTimedOut
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    Epoch,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.transactions import STATE_TOPIC, FromTransactions, Marker

P0, P1 = DATA
MINUTES_MS, SHORT_MS = 3 * 60_000, 1_000
LAST_EPOCH = 32_766


def shown(scene: TransactionScene, key: TopicPartition) -> list[tuple[int, int, bool | None]]:
    """Of each batch the offset, its producer's epoch, and what it ends."""
    log = entries_of(scene.cluster.replica(scene.leader(key), *key))
    return [(one.offset, one.epoch, one.marker) for one in log]


def coordinators(scene: TransactionScene, key: TopicPartition) -> list[int]:
    """Whose markers are there."""
    log = entries_of(scene.cluster.replica(scene.leader(key), *key))
    return [one.coordinator_epoch for one in log if one.marker is not None]


def write_late(
    scene: TransactionScene, client: TransactionalClient, key: TopicPartition, batch: bytes
) -> ErrorCode:
    """A batch that was on its way for a while."""
    leader, request = scene.until_led(key), produce(client.name, key, batch)
    answer = scene.ask(leader, k00.API, PRODUCE, request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def end_late(
    scene: TransactionScene, client: TransactionalClient, *, epoch: int, committed: bool
) -> ErrorCode:
    request = k26.EndTxnRequest(
        transactional_id=client.name,
        producer_id=client.producer_id,
        producer_epoch=epoch,
        committed=committed,
    )
    answer = scene.ask(scene.until_led(STATE), k26.API, END, request)
    return ErrorCode(answer.error_code)


def add_late(scene: TransactionScene, client: TransactionalClient, *, epoch: int) -> ErrorCode:
    request = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.name,
        v3_and_below_producer_id=client.producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=[1])],
    )
    answer = scene.ask(scene.until_led(STATE), k24.API, 3, request)
    row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
    return ErrorCode(row.partition_error_code)


def opened(client: TransactionalClient, *keys: TopicPartition, offset: int | None = None) -> Life:
    """A transaction that nobody ends yet."""
    written = client.truth.begun(client)
    yield from client.add(written, *keys)
    for key in keys:
        yield from client.write(written, key)
    if offset is not None:
        yield from client.add_offsets(written)
        yield from client.commit_offset(written, offset)


def committed_offset(scene: TransactionScene) -> int:
    reader, found = scene.client("reader"), list[int]()

    def reads() -> Life:
        found.append((yield from reader.committed_offset()))

    reader.finish(reads())
    return found[0]


# -- 5.13


def zombie_producer(scene: TransactionScene) -> None:
    """P1 writes and pauses; P2 takes its place, and writes; P1 wakes up."""
    first = scene.begun()
    first.finish(opened(first, P0))
    second = scene.begun()
    assert (first.producer_id, first.epoch) == (second.producer_id, 0)
    assert second.epoch == 2, "one for the abort, one for who asked"
    second.finish(second.transaction([P0]))
    batch = first.batch(P0, [b"0:-1"])
    assert write_late(scene, first, P0, batch) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_late(scene, first, epoch=0, committed=True) is ErrorCode.PRODUCER_FENCED
    scene.check()
    assert shown(scene, P0) == [(0, 0, None), (1, 1, False), (2, 2, None), (3, 2, True)]
    assert scene.read(P0) == ([b"1:-1"], 4)


def test_zombie_producer() -> None:
    """5.13."""
    zombie_producer(TransactionScene())


def test_zombie_producer_of_the_last_epoch() -> None:
    """5.13: where no epoch is left another producer id is given, and the old one stays fenced."""
    scene = TransactionScene()
    first, transactor = scene.begun(), scene.cluster.transactor
    place = transactor.process.machine.partition(STATE[1])  # type: ignore[union-attr] # begun
    known = place.shard._ids[first.name]  # type: ignore[union-attr] # begun
    first.epoch = LAST_EPOCH - 1
    late = msgspec.structs.replace(known, producer_epoch=ProducerEpoch(first.epoch))
    scene.write_state(records.TxnRecord(first.name, late))
    transactor.kill()
    first.finish(opened(first, P0))
    second = scene.begun()
    assert (second.producer_id == first.producer_id, second.epoch) == (False, 0)
    second.finish(second.transaction([P0]))
    batch = first.batch(P0, [b"0:-1"])
    assert write_late(scene, first, P0, batch) is ErrorCode.INVALID_PRODUCER_EPOCH
    scene.check()
    assert shown(scene, P0)[:2] == [(0, LAST_EPOCH - 1, None), (1, LAST_EPOCH, False)]
    assert scene.read(P0) == ([b"1:-1"], 4)


# -- 5.14


@pytest.mark.parametrize("retries", [True, False])
@pytest.mark.parametrize(
    ("step", "moment", "of_the_next"),
    [
        ("Prepare", "committed", [P0, P1, OFFSETS]),
        ("marker t-0", "committed", [P1, OFFSETS]),
        ("Complete", "before", []),
    ],
    ids=["before any marker", "after the first", "after all"],
)
def test_coordinator_crash_after_prepare(
    step: str, moment: str, of_the_next: list[TopicPartition], *, retries: bool
) -> None:
    """5.14: what is prepared comes true; each partition has its marker once, whoever wrote it."""
    scene = TransactionScene()
    client = scene.begun()
    killing = Killing(scene, client, victim="coordinator", dies=not retries)
    killing.at(step, moment, client)
    if step.startswith("marker"):
        scene.cluster.transactor.look = _only_to(P0, scene.cluster.transactor.process)
    client.finish(client.transaction(DATA, offset=5))
    scene.until(lambda: scene.state() is TxnState.COMPLETE_COMMIT)
    scene.check()
    for key in (P0, P1, OFFSETS):
        assert coordinators(scene, key) == [2 if key in of_the_next else 1], key
    assert shown(scene, P0) == shown(scene, P1) == [(0, 0, None), (1, 0, True)]
    assert committed_offset(scene) == 5
    said = [code for name, code in client.codes if name == k26.API.name]
    assert said[-1:] == ([ErrorCode.NONE] if retries else [])


def _only_to(
    key: TopicPartition, sender: TransactionProcess
) -> Callable[[TransactionProcess, BrokerId, FromTransactions], bool]:
    """Of this process's markers only that one gets out before it dies."""
    step = f"marker {key[0]}-{key[1]}"

    def passes(process: TransactionProcess, _to: BrokerId, message: FromTransactions) -> bool:
        markers = {one for one in steps_of(message) if one.startswith("marker")}
        return process is not sender or markers <= {step}

    return passes


def test_coordinator_crash_before_prepare() -> None:
    """5.14: what was not prepared is aborted when its time is up, for a client that is gone."""
    scene = TransactionScene()
    client = scene.begun(timeout_ms=SHORT_MS)
    killing = Killing(scene, client, victim="coordinator", dies=True)
    killing.at("Prepare", "before", client)
    client.finish(client.transaction(DATA, offset=5))
    scene.until(lambda: scene.state() is TxnState.COMPLETE_ABORT)
    scene.check()
    assert killing.is_done
    happened = scene.cluster.transactor.process.happened
    assert [type(one) for one in happened].count(TransactionTimedOut) == 1
    assert scene.read(P0) == ([], 2)
    assert [markers_in(scene, key) for key in (*DATA, OFFSETS)] == [[False]] * 3
    assert committed_offset(scene) == -1


def paused_coordinator(scene: TransactionScene) -> None:
    """It stands still between Prepare and the markers, and goes on beside its successor."""
    cluster, transactor = scene.cluster, scene.cluster.transactor
    client = scene.begun()
    client.finish(opened(client, *DATA))
    zombie = transactor.process

    def pauses(process: TransactionProcess, _to: BrokerId, message: FromTransactions) -> bool:
        if process is transactor.process is zombie and any(
            one.startswith("marker") for one in steps_of(message)
        ):
            transactor.pause()
        return True

    transactor.look = pauses
    # What it has said already arrives; what came for it meanwhile it finds when it goes on.
    client.live(client.end(scene.truth.written[0], committed=True))
    scene.until(lambda: zombie.paused)
    successor = transactor.start()
    scene.until(lambda: successor.machine is not None)
    for life in list(cluster.lives.values()):
        cluster.transactions.connect(life)
    scene.until(lambda: client.is_over and scene.state() is TxnState.COMPLETE_COMMIT)
    client.live(client.transaction(DATA, committed=False))
    cluster.run(1)
    transactor.resume(zombie)
    scene.until(lambda: client.is_over)
    scene.until(lambda: not zombie.alive)
    scene.check()
    assert transactor.process is successor
    assert zombie.ended_because
    assert [markers_in(scene, key) for key in DATA] == [[True, False]] * 2


def test_a_paused_coordinator_returns_and_ends_itself() -> None:
    """5.14: whatever the zombie says is refused."""
    paused_coordinator(TransactionScene())


# -- 5.15


@pytest.mark.parametrize("later_ms", [0, MINUTES_MS])
def test_late_produce_hangs_lso(later_ms: int) -> None:
    """5.15, KAFKA-14402: the batch comes when its transaction has been aborted."""
    late_produce(TransactionScene(), later_ms)


def late_produce(scene: TransactionScene, later_ms: int = 0) -> None:
    client = scene.begun()
    written = scene.truth.begun(client)
    client.finish(client.add(written, P0))
    held = client.batch(P0, [b"0:-1"])
    client.finish(client.end(written, committed=False))
    scene.cluster.run(later_ms)
    code = write_late(scene, client, P0, held)
    scene.check()
    assert code is ErrorCode.TRANSACTION_ABORTABLE
    assert shown(scene, P0) == [(0, 0, False)]
    assert scene.read(P0) == ([], 1), "nothing hides what comes behind"
    replica = scene.cluster.replica(scene.leader(P0), *P0)
    assert all(one.txn_start < 0 for _, one in replica.log.producers.items()), "nobody hangs"


# -- 5.16


def late_requests(scene: TransactionScene, *, bumps: bool) -> None:
    """All requests of the first transaction come once more, in the middle of the second. Who cannot
    tell what became of one takes another epoch."""
    client = scene.begun()
    client.finish(opened(client, P0))
    client.finish(client.end(scene.truth.written[0], committed=False))
    epoch, codes = client.epoch, []
    if bumps:
        late = client.batch(P0, [b"0:-1"])
        client.finish(client.init(client.producer_id, epoch))
        client.finish(opened(client, P0))
        codes.append(write_late(scene, client, P0, late))
    else:
        client.finish(opened(client, P0))
    codes.append(add_late(scene, client, epoch=epoch))
    codes.append(end_late(scene, client, epoch=epoch, committed=False))
    client.finish(client.end(scene.truth.written[1], committed=True))
    scene.check()
    assert codes == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.PRODUCER_FENCED,
    ]
    assert scene.read(P0) == ([b"1:-1"], 4)


def test_late_endtxn_hits_next_txn() -> None:
    """5.16."""
    late_requests(TransactionScene(), bumps=True)


def test_in_one_epoch_a_late_end_hits_the_next_transaction() -> None:
    """5.16: version 1 of the protocol cannot close this; in version 2 each end takes an epoch."""
    with pytest.raises(AssertionError, match="was told INVALID_TXN_STATE"):
        late_requests(TransactionScene(), bumps=False)


# -- of 5.21


def test_seq_gap() -> None:
    """5.21: sequence 0, then 2, in one transaction."""
    scene = TransactionScene()
    client = scene.begun()
    client.finish(opened(client, P0))
    client.batch(P0, [b"0:-1"])
    gap = write_late(scene, client, P0, client.batch(P0, [b"0:-1"]))
    assert gap is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    client.finish(client.end(scene.truth.written[0], committed=True))
    scene.check()
    assert shown(scene, P0) == [(0, 0, None), (1, 0, True)]


def test_producer_state_expiry() -> None:
    """5.21: who is forgotten begins anywhere, but for one that has a transaction open."""
    scene = TransactionScene()
    client, idle = scene.begun(), scene.begun("idle")
    idle.finish(idle.transaction([P0]))
    client.finish(opened(client, P0))
    for life in scene.cluster.lives.values():
        for replica in life.replicas:
            if replica.key == P0:
                gone = replica.log.producers.expire(1 << 60)
                assert gone == 1, "only the idle one"
    idle.finish(idle.transaction([P0]))
    client.finish(client.end(scene.truth.written[1], committed=True))
    scene.check()
    assert sorted(scene.read(P0)[0]) == [b"0:-1", b"1:-1", b"2:-1"]


# -- a state partition without a leader, and a cluster that never saw a transaction


def test_a_state_partition_without_a_leader_waits_for_one() -> None:
    scene = TransactionScene(state=(A, B), data=(C, B), offsets=(C, A, B))
    client = scene.begun()
    client.finish(opened(client, P0))
    for broker in (A, B):
        scene.cluster.kill(broker)
    scene.until(lambda: scene.leader(STATE) == NO_LEADER)
    client.live(client.end(scene.truth.written[0], committed=True))
    scene.cluster.run(5_000)
    assert not client.is_over
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.name not in {c.name for _, c in client.answers}
    scene.heal()
    scene.until(lambda: client.is_over)
    scene.check()
    assert markers_in(scene, P0) == [True]


def test_the_first_transaction_on_a_fresh_cluster() -> None:
    scene = TransactionScene(fresh=True)
    assert STATE_TOPIC not in scene.cluster.image.names
    client = scene.client()
    client.finish(client.init())
    client.finish(client.transaction(DATA, offset=5))
    client.finish(client.transaction(DATA, committed=False))
    scene.check()
    assert committed_offset(scene) == 5
    assert [markers_in(scene, key) for key in DATA] == [[True, False]] * 2


def test_an_operator_s_marker_with_a_high_epoch_holds_up_no_transaction() -> None:
    scene = TransactionScene()
    client = scene.begun()
    client.finish(opened(client, P0))
    life = scene.cluster.lives[scene.until_led(P0)]
    marker = Marker(
        *("t", P0[1], NO_EPOCH),
        ProducerId(client.producer_id),
        ProducerEpoch(client.epoch),
        committed=False,
    )
    now, highest = scene.cluster.now, Epoch((1 << 31) - 1)
    life.turn(lambda: life.broker.marks.mark(now, highest, (marker,), lambda *_: None))
    scene.cluster.run(50)
    client.finish(client.end(scene.truth.written[0], committed=False))
    scene.until(lambda: scene.state() is TxnState.COMPLETE_ABORT)
    client.finish(client.transaction([P0]))
    assert scene.read(P0)[0] == [b"1:-1"]
