"""Apache Kafka's own DumpLogSegments finds nothing wrong with our segments and their indexes."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, open_logs, produce
from harness.logs.transactions import Writer, index_files
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Record, build_batch

TOOL = "org.apache.kafka.tools.DumpLogSegments"  # kafka.tools.DumpLogSegments before 4.3
SETTINGS = LogSettings(segment_bytes=100_000)
COMPLAINTS = re.compile(
    r"mismatch|out of order|not found|Exception|isvalid: false|Non-consecutive|Invalid|corrupt",
    re.IGNORECASE,
)
# The tool takes -1 for the offset before the first one of each file: every segment but that at 0
# gets this complaint, Kafka's own too. Only where it names the file's base is it left out.
FIRST_OF_ITS_FILE = re.compile(
    r"Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1\n"
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    need_kafka()


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A partition that lived through everything: a kill, a cut, a clean stop, several epochs."""
    path = tmp_path_factory.mktemp("dump") / "log0"
    logs = open_logs(open_disk(str(path)), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    _write(log, epoch=0, first_sequence=0)
    log.truncate_to(log.end - 200)
    _write(log, epoch=3, first_sequence=1000)

    # Nobody closed the first one: the next finds what a killed broker leaves.
    logs = open_logs(open_disk(str(path)), settings=SETTINGS)
    revived = logs.log("t", 0)
    assert revived is not None
    _write(revived, epoch=5, first_sequence=2000)
    logs.close_clean({})
    yield path / "t-0"
    shutil.rmtree(path)


def _write(log: Log, *, epoch: int, first_sequence: int) -> None:
    """Small, large, compressed, idempotent and time-travelling batches."""
    for at in range(120):
        produce(log, batch(1 + at % 7, size=50, timestamp=NOW_MS + at * 10), epoch=epoch)
        produce(log, batch(20, size=200, timestamp=NOW_MS - at * 10), epoch=epoch)
        sequence = first_sequence + at
        produce(log, batch(1, producer=(7 + epoch, 0, sequence)), epoch=epoch)
    _write_transactions(log, epoch=epoch)
    for codec in Codec:
        records = [
            Record(at, NOW_MS + at, b"key", b"value" * 40, (("h", b"1"),)) for at in range(9)
        ]
        produce(log, memoryview(build_batch(records, codec=codec)), epoch=epoch)
    produce(log, batch(1, size=30_000), epoch=epoch)


def _write_transactions(log: Log, *, epoch: int) -> None:
    """Committed and aborted ones, side by side; and one that stays open, of a bumped epoch."""
    long, short = Writer(100 + epoch), Writer(200 + epoch)
    for at in range(20):
        long.write(log, size=4_000, epoch=epoch)
        short.write(log, 3, size=4_000, epoch=epoch)
        short.end(log, committed=at % 3 == 0, coordinator=epoch, epoch=epoch)
    long.end(log, committed=False, coordinator=epoch, epoch=epoch)
    short.bump()
    short.end(log, committed=False, coordinator=epoch, epoch=epoch)
    short.write(log, epoch=epoch)


def _files(partition: Path, suffix: str) -> str:
    files = sorted(str(path) for path in partition.glob(f"*{suffix}"))
    assert len(files) > 3, files
    return ",".join(files)


def _dump(*arguments: str) -> str:
    """Both outputs: the tool tells of damage on the second one and ends well all the same."""
    done = run_tool(TOOL, *arguments)
    assert done.code == 0, done.err
    return done.out + FIRST_OF_ITS_FILE.sub("", done.err)


def _dump_clean(*arguments: str) -> str:
    said = _dump(*arguments)
    complaint = COMPLAINTS.search(said)
    assert complaint is None, said[max(complaint.start() - 500, 0) : complaint.end() + 500]
    return said


def test_every_record_of_every_segment_is_read(partition: Path) -> None:
    said = _dump_clean("--files", _files(partition, ".log"), "--deep-iteration")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]
    assert sorted(offsets) == list(range(len(offsets)))
    assert len(offsets) > 8_000
    assert set(re.findall(r"compresscodec: (\w+)", said)) == {
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    }


@pytest.mark.parametrize("check", ["--verify-index-only", "--index-sanity-check", None])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_agree_with_the_segments(
    partition: Path, suffix: str, check: str | None
) -> None:
    arguments = ["--files", _files(partition, suffix)] + ([check] if check else [])
    said = _dump_clean(*arguments)
    if check == "--index-sanity-check":
        assert said.count("passed sanity check") == len(_files(partition, suffix).split(","))


def test_the_producer_snapshots_are_read(partition: Path) -> None:
    said = _dump_clean("--files", _files(partition, ".snapshot"))
    assert "producerId: 12 producerEpoch: 0" in said
    assert "lastSequence: 2119" in said


def test_the_tool_notices_a_wrong_index(partition: Path, tmp_path: Path) -> None:
    first = min(partition.glob("*.index"))
    for path in partition.glob(f"{first.stem}.*"):
        shutil.copy(path, tmp_path)
    wrong = bytearray(first.read_bytes())
    wrong[3] += 1
    (tmp_path / first.name).write_bytes(wrong)
    said = _dump("--files", str(tmp_path / first.name), "--verify-index-only")
    assert COMPLAINTS.search(said), said


def test_what_was_aborted_is_what_the_tool_reads(partition: Path) -> None:
    said = _dump_clean("--files", _files(partition, ".txnindex"))
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    rows = re.findall(" ".join(["version: 0", *(rf"{name}: (\d+)" for name in names)]), said)
    ours = open_logs(open_disk(str(partition.parent)), settings=SETTINGS).log("t", 0)
    assert ours is not None
    found = sorted((int(pid), int(first), int(last), int(lso)) for pid, first, last, lso in rows)
    assert found == sorted(
        (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in index_files(ours)
    )
    assert len(found) > 20


def test_the_ends_of_transactions_are_read(partition: Path) -> None:
    said = _dump_clean("--files", _files(partition, ".log"), "--deep-iteration")
    for kind in ("COMMIT", "ABORT"):
        assert f"endTxnMarker: {kind} coordinatorEpoch: 5" in said
    assert "isTransactional: true isControl: true" in said
