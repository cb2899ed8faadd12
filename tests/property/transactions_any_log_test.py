"""A transaction coordinator loads whatever states its log holds, and decides on.

Each record is the whole of what is known of an id, so any of them may be missing between two
others: compaction takes them out while the log is loaded.
"""

import random
from typing import Any

from harness.suite.budgets import Histories
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.records import Transaction, TxnRecord
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Describe,
    EndTxn,
    InitProducerId,
    ListAll,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.shard import TransactionSettings, TxnShard
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import Partition, ProducerEpoch, ProducerId, RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.errors import Rejected, WireError

IDS = "ab"
EPOCHS = (-1, 0, 1, 32_765, 32_766, 32_767)
PRODUCERS = (-1, 7, 8)
PLACES = (("t", Partition(0)), ("t", Partition(1)))


class Coordinator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = Instant(0)
        ids = ProducerIds()
        if self.random.random() < 0.8:
            ids.add(ProducerId(100), 1_000)
        self.shard = TxnShard(
            TransactionSettings(cleanup_interval_ms=1_000, id_expiration_ms=5_000),
            lambda now: now // ms(1),
            ids,
            lambda _event: None,
            lambda: self.random.choice([0, 2]),
        )

    def pick(self, *of: Any) -> Any:
        return self.random.choice(of)

    def load(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            try:
                found = records.read(*records.pair(self._record()))
            except WireError:
                continue
            assert found is not None
            self.shard.replay(found)
        self.shard.loaded(self.now)

    def _record(self) -> TxnRecord:
        if self.random.random() < 0.2:
            return TxnRecord(self.pick(*IDS), None)
        return TxnRecord(
            self.pick(*IDS),
            Transaction(
                producer_id=ProducerId(self.pick(*PRODUCERS)),
                producer_epoch=ProducerEpoch(self.pick(*EPOCHS)),
                timeout_ms=self.pick(-1, 0, 1_000),
                state=self.pick(*TxnState),
                updated_ms=self.pick(-1, 0, 5_000),
                started_ms=self.pick(-1, 0, 5_000),
                partitions=frozenset(self.random.sample(PLACES, self.random.randint(0, 2))),
                previous_producer_id=ProducerId(self.pick(*PRODUCERS)),
                next_producer_id=ProducerId(self.pick(*PRODUCERS)),
                client_version=self.pick(0, 1, 2, 3),
            ),
        )

    def ask(self) -> None:
        name = self.pick(*IDS)
        producer = ProducerId(self.pick(*PRODUCERS)), ProducerEpoch(self.pick(*EPOCHS))
        request = self.pick(
            InitProducerId(name, 1_000, *producer),
            InitProducerId(name, 1_000),
            AddPartitions(name, *producer, frozenset(PLACES[:1]), self.pick(0, 2)),
            VerifyPartitions(name, *producer, frozenset(PLACES[:1])),
            EndTxn(name, *producer, self.random.random() < 0.5, self.pick(0, 2)),
            Describe(name),
            ListAll(),
        )
        try:
            decision = self.shard.decide(self.now, RequestId(1), request)
        except Rejected:
            return
        self._replay(decision.records)

    def wait(self) -> None:
        self.now = Instant(self.now + ms(self.pick(0, 900, 6_000)))
        due = self.shard.deadline()
        if due is not None and due <= self.now:
            self._replay(self.shard.expire(self.now).records)

    def _replay(self, decided: tuple[TxnRecord, ...]) -> None:
        for record in decided:
            found = records.read(*records.pair(record))
            assert found == record
            self.shard.replay(record)


def test_whatever_its_log_holds_a_transaction_coordinator_decides_on(
    histories: Histories,
) -> None:
    def decide(seed: int) -> None:
        one = Coordinator(seed)
        one.load()
        for _ in range(10):
            one.ask()
            one.wait()

    histories.run(decide)
