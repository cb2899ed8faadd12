"""Apache Kafka's own DumpLogSegments finds nothing wrong with a compacted log."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, append_marker, compact
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.codecs import Codec
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin

TOOL = "org.apache.kafka.tools.DumpLogSegments"
SETTINGS = LogSettings(
    segment_bytes=60_000, index_interval_bytes=500, compact=True, delete_retention_ms=1_000
)
# Gaps are what compaction leaves; the tool calls them non-consecutive.
COMPLAINTS = re.compile(
    r"mismatch|out of order|not found|Exception|isvalid: false|corrupt", re.IGNORECASE
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    need_kafka()


def _append_some(log: Log, rng: Random, number: int, now_ms: int) -> None:
    """A batch; every fortieth time one in a transaction, and its end."""
    rows = [
        (b"k%d" % rng.randrange(900), None if rng.random() < 0.1 else bytes(30))
        for _ in range(rng.choice([1, 5, 40]))
    ]
    if number % 40 != 7:
        append(log, rows, timestamp=now_ms + number, codec=rng.choice(list(Codec)))
        return
    origin = Origin(9, 0, 0, TRANSACTIONAL_BIT)
    append(log, rows, timestamp=now_ms, origin=origin)
    append_marker(log, 9, commit=rng.random() < 0.5, timestamp=now_ms)


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compacted three times: with all codecs, tombstones, and transactions of both ends."""
    path = tmp_path_factory.mktemp("dump") / "log0"
    rng = Random(1)
    logs = open_logs(open_disk(str(path)), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    for pass_number in range(3):
        now_ms = NOW_MS + pass_number * 600
        for number in range(400):
            _append_some(log, rng, number, now_ms)
        log.roll(now_ms)
        flush(log)
        before = log.size_bytes
        compact(logs, log, now_ms)
        assert log.size_bytes < before
    log.purge()
    logs.close_clean({})
    yield path / "t-0"
    shutil.rmtree(path)


def _dump(*arguments: str) -> str:
    done = run_tool(TOOL, *arguments)
    assert done.code == 0, done.err
    said = done.out + done.err
    complaint = COMPLAINTS.search(said)
    assert complaint is None, said[max(complaint.start() - 500, 0) : complaint.end() + 500]
    return said


def _files(partition: Path, suffix: str) -> str:
    return ",".join(sorted(str(path) for path in partition.glob(f"*{suffix}")))


def test_every_record_that_is_left_is_read(partition: Path) -> None:
    said = _dump("--files", _files(partition, ".log"), "--deep-iteration")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]
    assert offsets == sorted(set(offsets))
    assert len(offsets) > 800
    assert set(re.findall(r"compresscodec: (\w+)", said)) == {
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    }
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + 2_200}]" in said
    assert "endTxnMarker: COMMIT" in said


@pytest.mark.parametrize("check", ["--verify-index-only", "--index-sanity-check"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_agree_with_the_segments(partition: Path, suffix: str, check: str) -> None:
    _dump("--files", _files(partition, suffix), check)


def test_the_index_of_aborted_transactions_is_read(partition: Path) -> None:
    said = _dump("--files", _files(partition, ".txnindex"))
    assert "version: 0 producerId: 9" in said
