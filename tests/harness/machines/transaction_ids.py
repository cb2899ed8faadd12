"""One partition's transactional ids, asked one request after the other; each record is replayed."""

from msgspec.structs import replace

from tidelog.coordinator.transactions.events import TransactionTimedOut
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.records import Transaction, TxnRecord
from tidelog.coordinator.transactions.requests import ListAll, Listed, Reply, Request
from tidelog.coordinator.transactions.shard import TransactionSettings, TxnShard
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import (
    Partition,
    ProducerEpoch,
    ProducerId,
    RequestId,
    TopicPartition,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import Rejected

ID = "tx"
PRODUCER = ProducerId(7)
EPOCH = ProducerEpoch(3)
PLACE: TopicPartition = ("t", Partition(0))
OTHER: TopicPartition = ("t", Partition(1))
TIMEOUT_MS = 60_000
START = Instant(1_000_000_000)
WALL_MS = 1_700_000_000_000
NEXT_ID = ProducerId(100)


def wall_ms(now: Instant) -> int:
    return WALL_MS + (now - START) // 1_000_000


class Ids:
    """A shard, its clock and its log."""

    def __init__(
        self, settings: TransactionSettings | None = None, stock: int = 10, version: int = 1
    ) -> None:
        self.now = START
        self.log: list[TxnRecord] = []
        self.timed_out: list[TransactionTimedOut] = []
        self.version = version
        """Of transactions, as the cluster has it."""
        self._settings = settings or TransactionSettings()
        self._stock = ProducerIds()
        if stock:
            self._stock.add(NEXT_ID, stock)
        self.shard = self._new()
        self.shard.loaded(self.now)
        self._asked = 0

    def _new(self) -> TxnShard:
        return TxnShard(
            self._settings, wall_ms, self._stock, self.timed_out.append, lambda: self.version
        )

    def put(self, known: Transaction, name: str = ID) -> None:
        """As if it had been decided."""
        self._take((TxnRecord(name, known),))

    def ask(self, request: Request) -> Reply:
        """What is said, a refusal too."""
        self._asked += 1
        asked = RequestId(self._asked)
        try:
            decision = self.shard.decide(self.now, asked, request)
        except Rejected as refused:
            return Refusal(refused.code)
        self._take(decision.records)
        ((answered, reply),) = decision.replies
        assert answered == asked
        return reply

    def give(self, count: int) -> None:
        """Producer ids come into stock."""
        self._stock.add(NEXT_ID, count)

    def expire(self) -> tuple[TxnRecord, ...]:
        records = self.shard.expire(self.now).records
        self._take(records)
        return records

    def _take(self, records: tuple[TxnRecord, ...]) -> None:
        for record in records:
            self.log.append(record)
            self.shard.replay(record)

    def wait(self, milliseconds: float) -> None:
        self.now = Instant(self.now + ms(milliseconds))

    def known(self, name: str = ID) -> Transaction | None:
        return self.all().get(name)

    def all(self) -> dict[str, Transaction]:
        reply = self.ask(ListAll())
        assert isinstance(reply, Listed)
        return dict(reply.rows)

    def load(self) -> None:
        """Another coordinator takes over: it has the log, nothing else."""
        self.shard = self._new()
        for record in self.log:
            self.shard.replay(record)
        self.shard.loaded(self.now)


def standing(state: TxnState, epoch: int = EPOCH, **changes: object) -> Transaction:
    """The id, as it stands in that state."""
    is_open = state.is_open
    known = Transaction(
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(epoch),
        timeout_ms=TIMEOUT_MS,
        state=state,
        updated_ms=WALL_MS,
        started_ms=-1 if state is TxnState.EMPTY else WALL_MS,
        partitions=frozenset({PLACE}) if is_open else frozenset(),
    )
    return replace(known, **changes)
