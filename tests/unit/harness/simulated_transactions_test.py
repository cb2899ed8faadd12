"""Brokers of a simulated cluster and whoever coordinates transactions there: here a test."""

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from harness.clients.produce_raw import batch_of
from harness.machines.transaction_service import state_batch
from harness.simulation.cluster import A, B, C, SimulatedCluster
from tidelog.kernel.ids import (
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    Partition,
    ProducerEpoch,
    ProducerId,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import TransactionsActivated
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin, iterate_batches, read_header
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Answered,
    Append,
    Appended,
    Chunk,
    Forward,
    Hello,
    Mark,
    Marked,
    Marker,
    Read,
    ToTransactions,
    Welcome,
)

MessageT = TypeVar("MessageT", bound=ToTransactions)
EPOCH = 3


class Scripted:
    """It says what a test tells it to, and remembers what it heard."""

    def __init__(self, cluster: SimulatedCluster, epoch: int = EPOCH) -> None:
        self.cluster = cluster
        self.epoch = Epoch(epoch)
        self.life = Incarnation(70 + epoch)
        self.sessions: dict[BrokerId, int] = {}
        self.heard_by: dict[BrokerId, list[ToTransactions]] = {}
        self.parts: Counter[BrokerId] = Counter()
        self._calls = 0

    def heard(self, broker: BrokerId, incarnation: Incarnation, message: ToTransactions) -> None:
        assert incarnation == self.cluster.lives[broker].incarnation
        if isinstance(message, Hello):
            self.sessions[broker] = message.session
            welcome = Welcome(message.session, self.life, self.epoch)
            self.cluster.transactions.to_broker(broker, welcome)
        self.heard_by.setdefault(broker, []).append(message)

    def parted(self, broker: BrokerId, incarnation: Incarnation) -> None:
        assert incarnation
        self.parts[broker] += 1
        self.sessions.pop(broker, None)

    def of(self, broker: BrokerId, kind: type[MessageT]) -> list[MessageT]:
        return [one for one in self.heard_by.get(broker, []) if isinstance(one, kind)]

    def call(self, broker: BrokerId, make: Callable[[int, int], Append | Mark | Read]) -> int:
        self._calls += 1
        request = make(self.sessions[broker], self._calls)
        self.cluster.transactions.to_broker(broker, request)
        return self._calls

    def append(self, broker: BrokerId, batch: bytes, leader_epoch: int = 0) -> int:
        place = (self.epoch, 0, Epoch(leader_epoch), batch)
        return self.call(broker, lambda session, call: Append(session, call, *place))


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create(STATE_TOPIC, A, B, C, min_insync_replicas="2")
    cluster.until(lambda: cluster.leads(A, STATE_TOPIC))
    return cluster


@pytest.fixture
def coordinator(cluster: SimulatedCluster) -> Scripted:
    coordinator = Scripted(cluster)
    cluster.transactions.begin(coordinator)
    cluster.until(lambda: len(coordinator.sessions) == 3)
    cluster.run(5)
    return coordinator


def forward(cluster: SimulatedCluster, broker: BrokerId) -> list[bytes | ErrorCode]:
    """A request that the broker passes on; its answer, once it is there."""
    answers: list[bytes | ErrorCode] = []
    life = cluster.lives[broker]
    deadline = Instant(cluster.now + ms(10_000))

    def ask() -> None:
        life.transactions.forward(
            b"frame", "127.0.0.1:1", deadline, lambda _now, answer: answers.append(answer)
        )

    life.turn(ask)
    return answers


def test_what_is_appended_is_told_once_it_is_replicated(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    call = coordinator.append(A, state_batch(b"a"))
    cluster.until(lambda: bool(coordinator.of(A, Appended)))
    assert coordinator.of(A, Appended) == [
        Appended(coordinator.life, call, ErrorCode.NONE, Offset(1))
    ]
    assert [cluster.replica(one, STATE_TOPIC).log.end for one in (A, B, C)].count(1) >= 2


def test_while_a_leader_has_too_few_followers_it_refuses(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    for broker in (B, C):
        cluster.kill(broker)
    cluster.until(lambda: len(cluster.view(STATE_TOPIC).isr) == 1)
    cluster.run(10)
    coordinator.append(A, state_batch(b"a"))
    cluster.until(lambda: bool(coordinator.of(A, Appended)))
    assert [one.code for one in coordinator.of(A, Appended)] == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_what_a_dead_leader_was_asked_the_next_one_can_tell(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    coordinator.append(A, state_batch(b"a"))
    cluster.kill(A)
    assert coordinator.parts[A] == 1
    cluster.until(lambda: cluster.leads(B, STATE_TOPIC))
    epoch = cluster.view(STATE_TOPIC).leader_epoch
    place = (coordinator.epoch, 0, epoch, Offset(0), 1 << 16)
    coordinator.call(B, lambda session, call: Read(session, call, *place))
    cluster.until(lambda: bool(coordinator.of(B, Chunk)))
    (chunk,) = coordinator.of(B, Chunk)
    assert chunk.code is ErrorCode.NONE
    assert chunk.end in {0, 1}, "nobody was told"
    assert len(list(iterate_batches(memoryview(chunk.batches)))) == chunk.next_sequence == chunk.end


def test_who_hears_first_of_a_new_leader_may_ask_it_before_it_knows(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    epoch = cluster.view(STATE_TOPIC).leader_epoch + 1
    coordinator.append(B, state_batch(b"a"), leader_epoch=epoch)
    cluster.run(5)
    assert coordinator.of(B, Appended) == []
    cluster.elect(B, A, C, topic=STATE_TOPIC)
    cluster.until(lambda: bool(coordinator.of(B, Appended)))
    assert [one.code for one in coordinator.of(B, Appended)] == [ErrorCode.NONE]


def test_a_broker_that_was_given_up_says_nothing_and_comes_back_in_another_session(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    before = coordinator.sessions[A]
    cluster.pause(A)
    coordinator.append(A, state_batch(b"a"))
    cluster.until(
        lambda: not cluster.leads(A, STATE_TOPIC) or cluster.view(STATE_TOPIC).leader != A
    )
    cluster.resume(A)
    cluster.until(lambda: coordinator.sessions.get(A, before) != before)
    cluster.run(20)
    assert coordinator.of(A, Appended) == []


def test_markers_end_what_is_open(cluster: SimulatedCluster, coordinator: Scripted) -> None:
    cluster.create("t", A, B, C)
    cluster.until(lambda: cluster.leads(A))
    replica = cluster.replica(A)
    batch = memoryview(batch_of(b"x", origin=Origin(7, 0, 0, TRANSACTIONAL_BIT)))

    def write() -> None:
        replica.log.append_as_leader(cluster.now, 0, batch, read_header(batch), 0)
        cluster.lives[A].machine.appended(cluster.now, replica, batch)

    cluster.lives[A].turn(write)
    marker = Marker("t", 0, Epoch(0), ProducerId(7), ProducerEpoch(0), committed=True)
    epoch = coordinator.epoch
    call = coordinator.call(A, lambda session, call: Mark(session, call, epoch, (marker,)))
    cluster.until(lambda: bool(coordinator.of(A, Marked)))
    assert coordinator.of(A, Marked) == [Marked(coordinator.life, call, (ErrorCode.NONE,))]
    known = replica.log.producers.get(7)
    assert known is not None
    assert known.txn_start == -1


def test_a_call_is_answered_by_who_is_there(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    answers = forward(cluster, B)
    cluster.until(lambda: bool(coordinator.of(B, Forward)))
    (asked,) = coordinator.of(B, Forward)
    cluster.transactions.to_broker(B, Answered(coordinator.sessions[B], asked.call, b"answer"))
    cluster.until(lambda: bool(answers))
    assert answers == [b"answer"]


def test_the_next_coordinator_is_not_asked_what_the_last_one_was(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    answers = forward(cluster, B)
    cluster.until(lambda: bool(coordinator.of(B, Forward)))
    cluster.transactions.end()
    assert answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    waiting = forward(cluster, B)
    following = Scripted(cluster, EPOCH + 1)
    cluster.transactions.begin(following)
    cluster.until(lambda: bool(following.of(B, Forward)))
    cluster.run(20)
    assert len(following.of(B, Forward)) == 1, "what waited, and nothing else"
    assert waiting == []


def test_without_a_coordinator_calls_are_refused_soon(cluster: SimulatedCluster) -> None:
    answers = forward(cluster, B)
    cluster.until(lambda: bool(answers), within_ms=301)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_the_epoch_in_the_metadata_ends_what_the_last_coordinator_is_asked(
    cluster: SimulatedCluster, coordinator: Scripted
) -> None:
    answers = forward(cluster, B)
    cluster.until(lambda: bool(coordinator.of(B, Forward)))
    cluster.coordinator.decide(TransactionsActivated(Epoch(EPOCH + 1), Incarnation(99)))
    cluster.until(lambda: bool(answers))
    assert answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    coordinator.append(A, state_batch(b"a"))
    cluster.run(20)
    assert coordinator.of(A, Appended) == [], "nobody takes its word any more"
    assert cluster.replica(A, STATE_TOPIC).log.end == 0
    assert cluster.image.names[STATE_TOPIC].partitions[Partition(0)].leader == A
