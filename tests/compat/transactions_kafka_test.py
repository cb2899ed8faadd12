"""Apache Kafka's files of a partition with transactions: its batches, taken in by our log, come to
the same aborted transactions and producers as Kafka's own files say. `--nightly` only.
"""

from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.disks.memory_disk import MemoryDisk
from harness.kafka.node import kafka_node, logs_of
from harness.logs.batches import NOW, NOW_MS, new_log
from harness.logs.transactions import index_files
from tidelog.kernel.limits import MIB
from tidelog.node.log.log import Log
from tidelog.node.log.producer_snapshot import decode_snapshot
from tidelog.node.log.producers import Producers
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.verify_log import Known, verify_log
from tidelog.wire.log_files import decode_aborted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "t"
STEPS = 300
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.segment.bytes": str(MIB),
    "num.partitions": "1",
}


class Writers:
    """Four transactional ids and somebody without, all at once."""

    def __init__(self, bootstrap: str, rng: Random) -> None:
        common = {"bootstrap.servers": bootstrap, "linger.ms": 0}
        self._rng = rng
        self._plain = Producer(common)
        self._ids = [Producer({**common, "transactional.id": f"id-{at}"}) for at in range(4)]
        self._begun: set[Producer] = set()
        for one in self._ids:
            one.init_transactions(30)

    def run(self) -> None:
        """In the end one is in mid transaction."""
        for _ in range(STEPS):
            self._step(self._rng.choice([*self._ids, self._plain]))
        last = self._ids[-1]
        for one in self._begun - {last}:
            one.abort_transaction(30)
        self._write(last)

    def _step(self, one: Producer) -> None:
        if one in self._begun and self._rng.random() < 0.3:
            self._begun.discard(one)
            end = one.commit_transaction if self._rng.random() < 0.5 else one.abort_transaction
            end(30)
        else:
            self._write(one)

    def _write(self, one: Producer) -> None:
        if one is not self._plain and one not in self._begun:
            self._begun.add(one)
            one.begin_transaction()
        one.produce(TOPIC, self._rng.randbytes(self._rng.randrange(20_000)))
        one.flush(30)


def told(producers: Producers) -> dict[int, tuple[int, ...]]:
    """What Kafka's snapshots have of each producer, but for the time."""
    return {
        producer_id: (
            one.epoch,
            one.batches[-1].last_sequence if one.batches else -1,
            one.batches[-1].last_offset if one.batches else -1,
            one.coordinator_epoch,
            one.txn_start,
        )
        for producer_id, one in producers.items()
    }


def taken_in(folder: Path) -> Log:
    """Our log, of the bytes that Kafka wrote."""
    log = new_log(MemoryDisk().directory(), LogSettings(segment_bytes=MIB))
    for path in sorted(folder.glob("*.log")):
        log.append_as_follower(NOW, NOW_MS, memoryview(path.read_bytes()))
    return log


def test_a_log_says_of_its_transactions_what_kafka_says(tmp_path: Path, *, nightly: bool) -> None:
    if not nightly:
        pytest.skip("Apache Kafka is started with --nightly only")
    with kafka_node(tmp_path, SETTINGS) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        Writers(bootstrap, Random(11)).run()
    folder = logs_of(tmp_path) / f"{TOPIC}-0"
    log = taken_in(folder)
    assert len(list(folder.glob("*.log"))) > 1
    content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.txnindex")))
    theirs = decode_aborted(content, place=str(folder))
    assert len(theirs) > 10
    assert index_files(log) == theirs
    newest = max(folder.glob("*.snapshot"))
    assert int(newest.stem) == log.end, "written when it was stopped"
    state = decode_snapshot(newest.read_bytes(), place=str(newest))
    assert told(log.producers) == told(state)
    assert sum(one.txn_start >= 0 for _, one in state.items()) == 1

    report = Report()
    verify_log(open_disk(str(folder)), Known(), report)
    # Kafka's snapshots hold one batch a producer, ours five.
    wrong = [one for one in report.violations if not one.file.endswith(".snapshot")]
    assert wrong == []
