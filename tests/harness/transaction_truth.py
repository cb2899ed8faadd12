"""What must be true of transactions, whatever happens: looked at when a producer hears something,
and in the logs when all is over.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.toy_producers import ToyProducer
from harness.toy_transaction_logs import Data, End
from harness.toy_written import Written
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.records import BARRIER, Transaction, TxnRecord
from tidelog.coordinator.transactions.requests import ListAll
from tidelog.coordinator.transactions.shard import TxnShard
from tidelog.coordinator.transactions.states import TRANSITIONS, TxnState
from tidelog.kernel.ids import RequestId, TopicPartition
from tidelog.wire.records import iterate_records, read_header
from tidelog.wire.transactions import STATE_TOPIC

if TYPE_CHECKING:
    from harness.transaction_world import World

ANY_WRITER = -1


class Truth:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.written: dict[int, Written] = {}
        self._begun_at: dict[int, int] = {}
        self._identities: set[tuple[int, int]] = set()

    # -- what producers are told

    def identified(self, producer: ToyProducer, identity: tuple[int, int]) -> None:
        assert identity not in self._identities, f"{identity} given twice"
        self._identities.add(identity)
        known = self._of_id(producer.transactional_id, producer.state_key, 0)
        assert any(identity in {_who(one), one.successor} for one in known), (
            f"{identity} is not in the log"
        )

    def begun(self, written: Written) -> None:
        self.written[written.serial] = written
        self._begun_at[written.serial] = len(state_records(self.world, self._key(written)))

    def added(self, written: Written, keys: tuple[TopicPartition, ...]) -> None:
        mine = (written.producer_id, written.producer_epoch)
        assert any(set(keys) <= one.partitions for one in self._since(written, mine)), (
            f"{keys} of {written} was acknowledged, and is not in the log"
        )

    def ended(self, written: Written) -> None:
        outcome = (
            {TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT}
            if written.told
            else {TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT}
        )
        at_end = (written.producer_id, written.epoch_at_end)
        assert any(one.state in outcome for one in self._since(written, at_end)), (
            f"the end of {written} was acknowledged, and is not in the log"
        )

    def _is_decided(self, written: Written, *, committed: bool) -> bool:
        """By its producer's own epoch, or by the next one: the end took it, or it locked out."""
        outcome = TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT
        bump = written.version - 1
        key, since = self._key(written), self._begun_at[written.serial]
        return any(
            known.state is outcome
            and known.producer_id == written.producer_id
            and known.producer_epoch - written.producer_epoch in {bump, bump if committed else 1}
            for known in self._of_id(written.transactional_id, key, since)
        )

    def _key(self, written: Written) -> TopicPartition:
        return ToyProducer(self.world, written.transactional_id).state_key

    def _since(self, written: Written, who: tuple[int, int]) -> list[Transaction]:
        """What the log says of this very producer since its transaction began."""
        known = self._of_id(
            written.transactional_id, self._key(written), self._begun_at[written.serial]
        )
        return [one for one in known if _who(one) == who]

    def _of_id(self, name: str, key: TopicPartition, since: int) -> list[Transaction]:
        rows = state_records(self.world, key)[since:]
        return [one.value for one in rows if one.transactional_id == name and one.value]

    # -- what the logs hold in the end

    def check(self) -> None:
        for key, partition in self.world.partitions.items():
            if key[0] == STATE_TOPIC:
                self._check_state(key)
            else:
                self._check_data(key, partition.committed)
        self._check_outcomes()

    def _check_state(self, key: TopicPartition) -> None:
        epochs = [read_header(one).producer_epoch for one in self.world.partitions[key].committed]
        assert epochs == sorted(epochs), f"{key}: a coordinator of the past wrote {epochs}"
        known: dict[str, Transaction] = {}
        for record in state_records(self.world, key):
            before, value = known.pop(record.transactional_id, None), record.value
            if value is not None:
                known[record.transactional_id] = value
            if record != BARRIER:
                _check_step(record, before, value)
        open_ids = {name: one.state.word for name, one in known.items() if one.state.is_open}
        assert not open_ids, f"{key}: never ended: {open_ids}"

    def _check_data(self, key: TopicPartition, log: list[Any]) -> None:
        """Each transaction that wrote here is ended by one marker, and no marker ends two."""
        open_: dict[int, set[int]] = {}
        epoch = 0
        self.ends = getattr(self, "ends", {})
        for entry in log:
            if isinstance(entry, Data):
                open_.setdefault(entry.producer_id, set()).add(entry.transaction)
                continue
            assert isinstance(entry, End)
            assert entry.coordinator_epoch >= epoch, f"{key}: a coordinator of the past marked"
            epoch = entry.coordinator_epoch
            serials = open_.pop(entry.producer_id, set())
            assert len(serials) <= 1, f"{key}: {entry} ends the transactions {serials}"
            for serial in serials:
                epochs = entry.producer_epoch, self.written[serial].epoch_at_end
                assert epochs[0] >= epochs[1], f"{key}: {entry} could end another transaction"
                self.ends.setdefault(serial, []).append((key, entry.committed))
        assert not open_, f"{key}: hanging transactions {open_}"

    def _check_outcomes(self) -> None:
        ends: dict[int, list[tuple[TopicPartition, bool]]] = getattr(self, "ends", {})
        for serial, written in self.written.items():
            places = [key for key, _ in ends.get(serial, [])]
            outcomes = {committed for _, committed in ends.get(serial, [])}
            assert len(places) == len(set(places)), f"{written} ended twice in {places}"
            assert len(outcomes) <= 1, f"{written} ended as {ends[serial]}"
            if written.told is not None:
                assert outcomes <= {written.told}, f"{written} ended as {outcomes}"
                left = written.partitions - self.world.deleted
                assert not written.told or set(places) == left, f"{written}: {places}"
            if True in outcomes:
                assert written.asked, f"{written} committed, and nobody asked for it"
            for committed in outcomes:
                assert self._is_decided(written, committed=committed), (
                    f"{written} ended as {committed}, and the log does not say so"
                )


def _who(known: Transaction) -> tuple[int, int]:
    return known.producer_id, known.producer_epoch


def _check_step(record: TxnRecord, before: Transaction | None, value: Transaction | None) -> None:
    """From one record of an id to the next."""
    was = TxnState.EMPTY if before is None else before.state
    to = TxnState.DEAD if value is None else value.state
    passes = TxnState.PREPARE_EPOCH_FENCE
    legal = to in TRANSITIONS[was] or (passes in TRANSITIONS[was] and to in TRANSITIONS[passes])
    assert legal, f"{record.transactional_id}: from {was.word} to {to.word}"
    if before is not None and value is not None:
        _check_change(record, before, value)


def _check_change(record: TxnRecord, before: Transaction, value: Transaction) -> None:
    if before.producer_id == value.producer_id:
        assert value.producer_epoch >= before.producer_epoch, f"{record}: the epoch went back"
    else:
        assert value.producer_epoch == 0, record
    fenced = value.producer_epoch == before.producer_epoch + 1
    if value.client_version == 2 and value.state.is_prepared:
        assert fenced, f"{record}: its end took no epoch"
    if before.state is TxnState.ONGOING and value.state is not before.state:
        assert value.partitions == before.partitions, f"{record}: partitions were lost"
        assert fenced or value.producer_epoch == before.producer_epoch, record


def state_records(world: "World", key: TopicPartition) -> list[TxnRecord]:
    """What a partition of the state holds, committed."""
    return [record for batch in world.partitions[key].committed for record in _records(batch)]


@lru_cache(maxsize=100_000)
def _records(batch: bytes) -> tuple[TxnRecord, ...]:
    rows = iterate_records(memoryview(batch))
    found = (records.read(one.key or b"", one.value) for one in rows)
    return tuple(one for one in found if one is not None)


def remembered(world: "World", shard: TxnShard) -> dict[str, Transaction]:
    """All that a shard knows."""
    (reply,) = shard.decide(world.now, RequestId(0), ListAll()).replies
    return dict(reply[1].rows)  # type: ignore[union-attr]  # a Listed


def replayed(world: "World", key: TopicPartition) -> dict[str, Transaction]:
    """What a coordinator knows that loads the log now."""
    shard = TxnShard(world.settings, world.wall_ms, ProducerIds(), lambda _: None, lambda: 2)
    for record in state_records(world, key):
        shard.replay(record)
    shard.loaded(world.now)
    return remembered(world, shard)
