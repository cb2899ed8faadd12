"""What must be true of `__transaction_state` itself: each record of an id may follow the one before
it, and the coordinator remembers what a load of the log would give.
"""

from typing import TYPE_CHECKING

from harness.logs.batches import NOW_MS
from tidelog.coordinator.settings import transaction_settings
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.records import BARRIER, Transaction, TxnRecord
from tidelog.coordinator.transactions.requests import ListAll
from tidelog.coordinator.transactions.shard import TxnShard
from tidelog.coordinator.transactions.states import TRANSITIONS, TxnState
from tidelog.kernel.ids import RequestId
from tidelog.node.replica.replicas import Replica
from tidelog.wire.records import iterate_batches, iterate_records

if TYPE_CHECKING:
    from harness.simulation.cluster import SimulatedCluster


def state_records(replica: Replica) -> list[TxnRecord]:
    """All that the log holds below the high watermark."""
    rows: list[TxnRecord] = []
    log, at = replica.log, replica.log.start
    while at < replica.high_watermark:
        piece = log.read(at, 1 << 30, replica.high_watermark, min_one=True)
        assert piece is not None
        for header, batch in iterate_batches(piece.file.read(piece.position, piece.size)):
            at = header.next_offset
            found = (records.read(one.key or b"", one.value) for one in iterate_records(batch))
            rows += [one for one in found if one is not None]
    return rows


def check_steps(rows: list[TxnRecord]) -> None:
    """Not for a log that was compacted: it lacks records."""
    known: dict[str, Transaction] = {}
    for record in rows:
        before, value = known.pop(record.transactional_id, None), record.value
        if value is not None:
            known[record.transactional_id] = value
        if record != BARRIER:
            _check_step(record, before, value)
    open_ids = {name: one.state.word for name, one in known.items() if one.state.is_open}
    assert not open_ids, f"T5: never ended: {open_ids}"


def _check_step(record: TxnRecord, before: Transaction | None, value: Transaction | None) -> None:
    was = TxnState.EMPTY if before is None else before.state
    to = TxnState.DEAD if value is None else value.state
    passes = TxnState.PREPARE_EPOCH_FENCE
    legal = to in TRANSITIONS[was] or (passes in TRANSITIONS[was] and to in TRANSITIONS[passes])
    assert legal, f"T5: {record.transactional_id}: from {was.word} to {to.word}"
    if before is not None and value is not None:
        _check_change(record, before, value)


def _check_change(record: TxnRecord, before: Transaction, value: Transaction) -> None:
    if before.producer_id == value.producer_id:
        assert value.producer_epoch >= before.producer_epoch, f"T5: {record}: the epoch went back"
    else:
        assert value.producer_epoch == 0, f"T5: {record}: a new id begins with epoch 0"
    takes_one = value.producer_epoch == before.producer_epoch + 1
    if value.client_version == 2 and value.state.is_prepared:
        assert takes_one, f"T5: {record}: its end took no epoch"
    if before.state is TxnState.ONGOING and value.state is not before.state:
        assert value.partitions == before.partitions, f"T5: {record}: partitions were lost"
        assert takes_one or value.producer_epoch == before.producer_epoch, f"T5: {record}"


def check_memory(cluster: "SimulatedCluster", shard: TxnShard, rows: list[TxnRecord]) -> None:
    """A coordinator that loads the log now knows what the present one knows."""
    fresh = TxnShard(
        transaction_settings(cluster.settings),
        lambda now: NOW_MS + now // 1_000_000,
        ProducerIds(),
        lambda _: None,
        lambda: 2,
    )
    for record in rows:
        fresh.replay(record)
    fresh.loaded(cluster.now)
    assert _known(cluster, shard) == _known(cluster, fresh), "T5: memory and log differ"


def _known(cluster: "SimulatedCluster", shard: TxnShard) -> dict[str, Transaction]:
    (reply,) = shard.decide(cluster.now, RequestId(0), ListAll()).replies
    return dict(reply[1].rows)  # type: ignore[union-attr]  # a Listed
