"""Whole lives of a transactional producer against a broker that breaks requests by draw.

What was committed is seen once, whole and in order; of what was aborted nothing is; no batch that
came late is ever part of another transaction.
"""

import random
from typing import Any, TypeVar

import pytest

from harness.faults.planting import Plant, Planting
from harness.machines.plans import FakeNetwork
from harness.machines.toy_transactions import BAD, VERSION_2, Log, Marker, ToyTransactions
from tidelog.clients.asking import Address, Plan
from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError, FatalError
from tidelog.clients.producer import transactional
from tidelog.clients.producer.life import Phase
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import Membership, end_transaction
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import ms, s
from tidelog.wire.records import Record

ResultT = TypeVar("ResultT")

SEEDS = range(60)
TRANSACTIONS = 12
PARTITIONS = 2
PLACE = ("in", Partition(0))


class Story:
    """One producer's life, and what it believes of it."""

    def __init__(self, seed: int, *, bumps: bool = False) -> None:
        self.rng = random.Random(seed)
        self.cluster = ToyTransactions(PARTITIONS, faults=random.Random(seed + 1), bumps=bumps)
        network = FakeNetwork(self.cluster, ms(2))
        network.features = VERSION_2 if bumps else network.features
        self.client = Client(network, [Address("b0", 9092)], timeout_ns=s(600))
        self.client.connect()
        settings = ProducerSettings(
            transactional_id="x",
            batch_bytes=200,
            linger_ns=ms(1),
            request_timeout_ns=s(1),
            delivery_timeout_ns=s(20),
        )
        self.producer = TransactionalProducer(self.client, settings)
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.offset: int | None = None
        self.aborted = 0

    def run(self) -> None:
        self.producer.open("t")
        for number in range(TRANSACTIONS):
            self._transaction(number)
        self.cluster.faults = None
        for late in self.cluster.held:
            late()

    def _transaction(self, number: int) -> None:
        self.producer.begin()
        sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        try:
            self._write(number, sent)
            if self.rng.random() < 0.25:
                self._abort()
                return
            self.producer.commit()
        except AbortableError:
            self._abort()
            return
        for at, mine in enumerate(sent):
            self.committed[at] += mine
        self.offset = number if number % 2 else self.offset

    def _write(self, number: int, sent: list[list[bytes]]) -> None:
        for at in range(self.rng.randrange(25)):
            partition = self.rng.randrange(PARTITIONS)
            value = BAD if self.rng.random() < 0.004 else b"%d/%d" % (number, at)
            self.producer.send("t", Record(0, 0, None, value), Partition(partition))
            sent[partition].append(value)
            if self.rng.random() < 0.1:
                self.producer.flush()
        if number % 2:
            self.producer.send_offsets({PLACE: number}, Membership("g"))

    def _abort(self) -> None:
        self.aborted += 1
        self.producer.abort()


def wrong(story: Story) -> list[str]:
    """What the logs hold that the producer does not believe."""
    found = []
    for number, (log, mine) in enumerate(zip(story.cluster.logs, story.committed, strict=True)):
        if log.visible() != mine:
            found.append(f"partition {number} shows {log.visible()}, not {mine}")
        if log.is_open:
            found.append(f"partition {number} has a transaction that nobody ends")
    committed = story.cluster.offsets.get(PLACE)
    if committed != story.offset:
        found.append(f"the group is at {committed}, not at {story.offset}")
    return found


def lived(seed: int, *, bumps: bool = False) -> Story:
    """Under version 2 with `bumps`, else under version 1."""
    story = Story(seed, bumps=bumps)
    story.run()
    return story


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_committed_is_seen_whole_and_what_is_aborted_is_not(
    seed: int, *, bumps: bool
) -> None:
    assert wrong(lived(seed, bumps=bumps)) == []


@pytest.mark.parametrize("bumps", [False, True])
def test_lives_meet_what_they_are_about(*, bumps: bool) -> None:
    lives = [lived(seed, bumps=bumps) for seed in SEEDS]
    assert sum(one.aborted for one in lives) > len(lives)
    assert sum(one.cluster.epoch for one in lives) > len(lives) / 2, "epochs are bumped"
    assert sum(map(len, (part for one in lives for part in one.committed))) > 20 * len(lives)
    markers = [
        entry
        for one in lives
        for log in one.cluster.logs
        for entry in log.entries
        if isinstance(entry, Marker)
    ]
    assert {one.committed for one in markers} == {True, False}


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_who_is_fenced_ends_and_what_it_had_open_is_never_seen(seed: int, *, bumps: bool) -> None:
    story = Story(seed, bumps=bumps)
    story.producer.open("t")
    for number in range(3):
        story._transaction(number)
    story.producer.begin()
    story.cluster.fence()
    with pytest.raises((AbortableError, FatalError)):
        story._write(5, [[], []])
    if story.producer.phase is not Phase.DEAD:
        with pytest.raises(FatalError):
            story.producer.abort()
    assert story.producer.phase is Phase.DEAD
    with pytest.raises(FatalError):
        story.producer.begin()
    assert wrong(story) == []


# -- faults that are planted ----------------------------------------------------------------------


def _no_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers begin anew in the epoch in which they have been given out."""
    really = TransactionalProducer._init

    def init(producer: TransactionalProducer, current: Identity | None) -> Plan[Identity]:
        return really(producer, None) if current is None else _at_once(current)

    monkeypatch.setattr(TransactionalProducer, "_init", init)


def _at_once(result: ResultT) -> Plan[ResultT]:
    yield from ()
    return result


def _commits_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionalProducer, "_raise_failure", lambda _self: None)


def _forgets_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is taken for done before anybody has heard of it."""
    monkeypatch.setattr(transactional, "end_transaction", lambda *_, **__: _at_once(None))


def _skips_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "commit_offsets", lambda *_, **__: _at_once(None))


def _keeps_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an end says of who the producer is now is not heard."""

    def end(*asked: Any, committed: bool, bumps: bool) -> Plan[Identity]:
        yield from end_transaction(*asked, committed=committed, bumps=bumps)
        identity: Identity = asked[2]
        return identity

    monkeypatch.setattr(transactional, "end_transaction", end)


@pytest.mark.parametrize(
    ("plant", "bumps"),
    [
        (_no_new_epoch, False),
        (_commits_what_failed, False),
        (_forgets_to_end, False),
        (_skips_the_group, False),
        (_commits_what_failed, True),
        (_keeps_its_epoch, True),
    ],
)
def test_a_planted_fault_is_seen(plant: Plant, planting: Planting, *, bumps: bool) -> None:
    def is_right(seed: int) -> None:
        assert wrong(lived(seed, bumps=bumps)) == []

    planting.is_found(plant, is_right, by=(AssertionError, FatalError, RuntimeError))


def test_a_log_shows_what_was_committed_alone() -> None:
    log = Log()
    log.mark(0, committed=True)
    assert log.visible() == []
