"""A broker whose partitions take part in transactions, and all that comes late: batches, the
coordinator's words, its markers. Nothing comes in the order in which it was sent.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from harness.machines.brokers import HandlerBench, led_here
from harness.machines.group_bench import Asked
from harness.machines.transaction_bench import (
    answer_frame,
    end_transaction,
    log_of,
    question,
    start_producing,
    transactional,
)
from tidelog.kernel.ids import Epoch, Partition, ProducerEpoch, ProducerId
from tidelog.node.transactions.admissions import Admissions
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import PartitionChanged
from tidelog.wire.transactions import Admit, Admitted

PARTITIONS = 2
PRODUCERS = (7, 8)
ASKED, ADDED = 11, 12
"""Versions of produce: partitions are added before, or by the first batch."""


@dataclass
class Transaction:
    """What the coordinator knows of a producer's transaction."""

    epoch: int = 0
    partitions: set[int] = field(default_factory=set)
    outcome: bool | None = None
    """None while it is open."""
    owed: set[int] = field(default_factory=set)
    """Partitions whose marker is not written."""

    def add(self, index: int) -> None:
        self.partitions.add(index)
        self.owed.add(index)


class Gate:
    """One history. Invariant: what is open in a log, somebody will end; and where each end takes an
    epoch, that is the end of the transaction that it belongs to."""

    def __init__(self, directory: Path, seed: int, version: int = ASKED) -> None:
        self.random = Random(seed)
        self.version = version
        self.bumps = version >= ADDED
        self.bench = HandlerBench(directory)
        self.topic = self.bench.topic("t", PARTITIONS)
        self.transactions = {one: Transaction() for one in PRODUCERS}
        self.sequences: dict[tuple[int, int], int] = {}
        self.late: list[tuple[int, bytearray]] = []
        """Batches that were sent, and may come once more."""
        self.questions = 0
        self.words: list[tuple[int, bytes]] = []
        """What the coordinator has said, on its way."""
        self.admissions = Admissions(
            self.bench.broker.replicas, self.bench.broker.on_storage_failure
        )
        self.admits: deque[Admit] = deque()
        """What the coordinator has said of itself, on its way; it comes in its order."""
        self.heard = 0
        self.asked: list[Asked] = []
        self.taken = 0
        self.elections = 0

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self._send),
            (4, self._send_late),
            (8, self._decide),
            (8, self._deliver),
            (0 if self.bumps else 6, self._add),
            (2, self._end),
            (6, self._mark),
            (1, self._elect),
            (6, self._hear),
            (1, self.admits.clear),  # the connection is another one
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices(actions, weights)[0][1]()
        for asked in self.asked:
            self.taken += asked.answer() is not None
        self.asked = [one for one in self.asked if one.answer() is None]
        self.check()

    # -- the producers

    def _send(self) -> None:
        producer, index = self.random.choice(PRODUCERS), self.random.randrange(PARTITIONS)
        sequence = self.sequences.get((producer, index), 0)
        epoch = self.transactions[producer].epoch
        batch = transactional(sequence, producer_id=producer, epoch=epoch)
        self.late.append((index, bytearray(batch)))
        self._begin(index, batch)
        known = log_of(self.bench, index=index).producers.get(producer)
        is_there = known is not None and known.epoch == epoch
        self.sequences[producer, index] = known.next_sequence if known and is_there else 0

    def _send_late(self) -> None:
        if self.late:
            index, batch = self.late.pop(self.random.randrange(len(self.late)))
            self._begin(index, batch)

    def _begin(self, index: int, batch: bytearray) -> None:
        asked = start_producing(self.bench, ("t", index, batch), version=self.version)
        self.asked.append(asked)

    # -- the coordinator

    def _add(self) -> None:
        producer = self.random.choice(PRODUCERS)
        transaction = self.transactions[producer]
        if transaction.outcome is None:
            index = self.random.randrange(PARTITIONS)
            transaction.add(index)
            self._admit(producer, index, transaction.epoch)

    def _admit(self, producer: int, index: int, epoch: int) -> None:
        leader_epoch = self.bench.image.names["t"].partitions[index].leader_epoch
        place = (Admitted("t", index, leader_epoch),)
        self.admits.append(Admit(1, Epoch(1), ProducerId(producer), ProducerEpoch(epoch), place))

    def _hear(self) -> None:
        if self.admits:
            self.admissions.take(self.admits.popleft())
            self.heard += 1

    def _hear_all(self) -> None:
        """A marker comes behind all that was said before it."""
        while self.admits:
            self._hear()

    def _end(self) -> None:
        transaction = self._some()
        if transaction.partitions and transaction.outcome is None:
            transaction.outcome = self.random.random() < 0.5
            transaction.epoch += self.bumps

    def _some(self) -> Transaction:
        return self.transactions[self.random.choice(PRODUCERS)]

    def _decide(self) -> None:
        """A question gets to the coordinator, which says what is so now."""
        if self.questions < len(self.bench.transactions.forwarded):
            asked = question(self.bench, self.questions)
            (index,) = asked.topics[0].partitions
            assert asked.verify_only != self.bumps
            word = self._word(asked.producer_id, asked.producer_epoch, index)
            self.words.append((self.questions, word))
            self.questions += 1

    def _word(self, producer_id: int, epoch: int, index: int) -> bytes:
        transaction = self.transactions[producer_id]
        code = ErrorCode.NONE
        if transaction.epoch != epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif transaction.outcome is not None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif self.bumps:
            transaction.add(index)
        elif index not in transaction.partitions:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return answer_frame({("t", index): code})

    def _deliver(self) -> None:
        if self.words:
            at, word = self.words.pop(self.random.randrange(len(self.words)))
            self.bench.transactions.done[at](word)

    def _mark(self) -> None:
        """A marker comes; when all are there the producer may begin the next transaction."""
        producer = self.random.choice(PRODUCERS)
        transaction = self.transactions[producer]
        if transaction.outcome is None:
            return
        index = self.random.choice(sorted(transaction.owed))
        self._hear_all()
        try:
            end_transaction(
                self.bench,
                "t",
                index,
                producer_id=producer,
                epoch=transaction.epoch,
                committed=transaction.outcome,
            )
        except Rejected:
            return
        transaction.owed.discard(index)
        if not transaction.owed:
            self.transactions[producer] = Transaction(transaction.epoch)

    def _elect(self) -> None:
        self.elections += 1
        view = led_here(leader_epoch=self.elections, partition_epoch=self.elections)
        index = Partition(self.random.randrange(PARTITIONS))
        self.bench.replay(PartitionChanged(self.topic, index, view))

    # -- what must be so

    def check(self) -> None:
        for index in range(PARTITIONS):
            for producer_id, known in log_of(self.bench, index=index).producers.items():
                transaction = self.transactions[producer_id]
                is_ours = index in transaction.owed
                assert known.txn_start < 0 or is_ours, (
                    f"producer {producer_id} hangs in partition {index} since {known.txn_start}"
                )
                ended = self.bumps and transaction.outcome is not None
                assert known.txn_start < 0 or known.epoch == transaction.epoch - ended, (
                    f"producer {producer_id} wrote late into its next transaction"
                )
