"""Apache Kafka's own tool reads our `__transaction_state`: states, tombstones, the barrier."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from harness.machines.transaction_ids import ID, WALL_MS, standing
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.records import BARRIER, Transaction, TxnRecord
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import Epoch, Partition, ProducerEpoch, ProducerId
from tidelog.wire.records import place_batch
from tidelog.wire.transactions import RESERVED_PRODUCER_ID

TOOL = "org.apache.kafka.tools.DumpLogSegments"
PLACES = frozenset({("t", Partition(1)), ("t", Partition(0)), ("__consumer_offsets", Partition(9))})
STATES = [state for state in TxnState if state.is_open or state.is_idle]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    need_kafka()


def rows() -> list[TxnRecord]:
    found = [BARRIER]
    for state in STATES:
        known = standing(
            state,
            partitions=PLACES if state.is_open else frozenset(),
            previous_producer_id=ProducerId(6),
            next_producer_id=ProducerId(8),
            next_producer_epoch=ProducerEpoch(0),
            client_version=2,
        )
        found.append(TxnRecord(f"{ID} {state.word}", known))
    return [*found, TxnRecord("gone", None)]


def test_kafka_reads_every_record_that_we_write(tmp_path: Path) -> None:
    written = rows()
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    with log.open("wb") as file:
        for at, record in enumerate(written):
            batch = bytearray(
                records.batch_of([records.pair(record)], WALL_MS, epoch=Epoch(3), sequence=at)
            )
            place_batch(batch, 0, base_offset=at, leader_epoch=0)
            file.write(batch)
    said = run_tool(TOOL, "--transaction-log-decoder", "--files", str(log))
    assert said.code == 0, said.err
    assert said.out.count("isvalid: true") == len(written)
    assert said.out.count(f"producerId: {RESERVED_PRODUCER_ID} producerEpoch: 3") == len(written)
    found = re.findall(r'key: \{"type":"0","data":(.*)\} payload: (.*)', said.out)
    names = [json.loads(key)["transactionalId"] for key, _ in found]
    assert names == [record.transactional_id for record in written]
    for (_, payload), record in zip(found, written, strict=True):
        if record.value is None:
            assert payload == "<DELETE>"
        else:
            assert json.loads(payload) == {"version": "1", "data": shown(record.value)}


def shown(known: Transaction) -> dict[str, Any]:
    """As Kafka calls it."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        topics.setdefault(topic, []).append(partition)
    partitions = [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()]
    return {
        "producerId": known.producer_id,
        "previousProducerId": known.previous_producer_id,
        "nextProducerId": known.next_producer_id,
        "producerEpoch": known.producer_epoch,
        "nextProducerEpoch": known.next_producer_epoch,
        "transactionTimeoutMs": known.timeout_ms,
        "transactionStatus": int(known.state),
        "transactionPartitions": None if known.state is TxnState.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": known.updated_ms,
        "transactionStartTimestampMs": known.started_ms,
        "clientTransactionVersion": known.client_version,
    }
