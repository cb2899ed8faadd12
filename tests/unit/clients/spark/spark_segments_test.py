"""Rows from segment files: the log engine writes them, the reader sees what a fetch would show."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from harness.logs.compaction import append, compact, records_of
from harness.logs.transactions import Writer
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, Uuid
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.spark import segments
from tidelog.spark.arrow import Columns
from tidelog.spark.segments import DoubtError, SegmentReader, Span, bounds

PARTITION = ("t", Partition(0))
SMALL = LogSettings(segment_bytes=4096, index_interval_bytes=200)
COMMITTED = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class Stage:
    """One broker's folder in a cluster's, and its one log."""

    data: Path
    logs: LogDirectory
    log: Log

    @property
    def folder(self) -> Path:
        return self.data / "broker-0" / "log0" / "t-0"

    def write(self, batches: int, rows: int = 3, size: int = 100) -> None:
        for _ in range(batches):
            produce(self.log, batch(rows, size=size))

    def note_committed(self, upto: int | None = None) -> None:
        made = self.logs.checkpoint({PARTITION: self.log.end if upto is None else upto})
        made.write()
        self.logs.checkpointed(made)

    def reader(
        self,
        first: int,
        end: int | None = None,
        *,
        isolation: Isolation = COMMITTED,
        leader: int | None = None,
        topic_id: Uuid | None = None,
    ) -> SegmentReader:
        upto = self.log.end if end is None else end
        wanted = Span(PARTITION, first, upto, isolation, leader, topic_id)
        return SegmentReader([self.data], wanted, Columns.of(["offset"]), rows_per_batch=7)

    def segment_files(self, suffix: str = ".log") -> list[Path]:
        return sorted(self.folder.glob(f"*{suffix}"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return staged(tmp_path, SMALL)


def staged(data: Path, settings: LogSettings) -> Stage:
    path = data / "broker-0" / "log0"
    path.mkdir(parents=True)
    logs = open_logs(open_disk(str(path)), settings=settings)
    return Stage(data, logs, logs.create("t", 0, TOPIC_ID, settings))


def offsets(reader: SegmentReader) -> list[int]:
    return [offset for rows in reader.batches() for offset in rows.column("offset").to_pylist()]


def until_doubt(reader: SegmentReader) -> tuple[list[int], DoubtError]:
    """What was given, and why no more."""
    found: list[int] = []
    batches = reader.batches()
    while True:
        try:
            found += next(batches).column("offset").to_pylist()
        except DoubtError as doubt:
            return found, doubt


# -- what is given ------------------------------------------------------------------------------


@pytest.mark.parametrize("has_indexes", [True, False])
def test_any_range_is_read_over_segments_and_from_mid_batch(
    stage: Stage, *, has_indexes: bool
) -> None:
    stage.write(40)
    stage.log.roll(NOW_MS)
    stage.note_committed()
    assert len(stage.segment_files()) > 3
    assert stage.segment_files(".index")[0].stat().st_size > 0
    for path in [] if has_indexes else stage.segment_files(".index"):
        path.unlink()
    for first, end in [(0, 120), (1, 2), (50, 50), (31, 33), (62, 120), (119, 120)]:
        reader = stage.reader(first, end)
        assert offsets(reader) == list(range(first, end))
        assert reader.next_offset >= end


def test_a_batch_larger_than_a_piece_is_read_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_PIECE_BYTES", 70)
    stage.write(3, rows=10)
    stage.note_committed()
    assert offsets(stage.reader(0)) == list(range(30))


def test_the_leader_of_now_needs_no_word_on_disk_of_what_is_committed(stage: Stage) -> None:
    stage.write(2)
    found, doubt = until_doubt(stage.reader(0))
    assert (found, doubt.next_offset) == ([], 0)
    assert "no replica here is known to hold what is committed up to 6" in str(doubt)
    assert offsets(stage.reader(0, leader=0)) == list(range(6))
    assert until_doubt(stage.reader(0, leader=1))[0] == []


def test_what_was_aborted_is_left_out_also_where_its_end_is_segments_away(stage: Stage) -> None:
    stage.write(1)
    lost, kept = Writer(7), Writer(8)
    lost.write(stage.log, 2)
    kept.write(stage.log, 2)
    stage.write(20)
    lost.end(stage.log, committed=False)
    kept.end(stage.log, committed=True)
    lost.write(stage.log, 1)
    lost.end(stage.log, committed=True)
    stage.note_committed()
    assert len(stage.segment_files()) > 1
    shown = [0, 1, 2, 5, 6, *range(7, 67), 69]
    assert offsets(stage.reader(0)) == shown
    assert offsets(stage.reader(4, 7)) == [5, 6]
    assert offsets(stage.reader(67)) == [69]
    every = stage.reader(0, isolation=Isolation.READ_UNCOMMITTED)
    assert offsets(every) == [0, 1, 2, 3, 4, *shown[3:]]


def test_an_index_that_lacks_an_aborted_transaction_is_doubted(stage: Stage) -> None:
    """The disk had no room for its entry; the broker knows it, the file does not."""
    stage.write(1)
    lost = Writer(7)
    lost.write(stage.log, 2)
    stage.write(20)
    lost.end(stage.log, committed=False)
    stage.write(2)
    stage.note_committed()
    (index,) = stage.segment_files(".txnindex")
    index.unlink()
    for first, end in ((0, None), (0, 5), (4, 5)):
        given, doubt = until_doubt(stage.reader(first, end))
        assert given == []
        assert "lacks the transaction that was aborted at offset 65" in doubt.reason
    assert offsets(stage.reader(0, 3)) == [0, 1, 2]
    assert offsets(stage.reader(5)) == [*range(5, 65), *range(66, 72)]
    every = stage.reader(0, isolation=Isolation.READ_UNCOMMITTED)
    assert len(offsets(every)) == 71


def test_a_replica_that_lacks_the_end_of_a_transaction_is_doubted(stage: Stage) -> None:
    """Its records are committed, by the leader's word, and so is its end: it is not here yet."""
    stage.write(1)
    Writer(7).write(stage.log, 2)
    stage.write(2)
    stage.note_committed()
    given, doubt = until_doubt(stage.reader(0))
    assert given == []
    assert "holds no end of a transaction of producer 7" in doubt.reason
    assert offsets(stage.reader(0, 3)) == [0, 1, 2]


def test_of_a_compacted_log_what_is_left_is_read(tmp_path: Path) -> None:
    settings = LogSettings(
        segment_bytes=4096, index_interval_bytes=200, compact=True, min_cleanable_dirty_ratio=0
    )
    stage = staged(tmp_path, settings)
    for number in range(60):
        append(stage.log, [(b"k%d" % (number % 7), bytes(100)), (b"once", b"x")])
    stage.log.roll(NOW_MS)
    flush(stage.log)
    assert compact(stage.logs, stage.log) is not None
    append(stage.log, [(b"k1", b"new")])
    stage.note_committed()
    expected = [record.offset for record in records_of(stage.log)]
    assert len(expected) < 60
    reader = stage.reader(0)
    assert offsets(reader) == expected
    assert reader.next_offset == stage.log.end
    assert offsets(stage.reader(30, 100)) == [at for at in expected if 30 <= at < 100]


def test_what_is_deleted_while_it_is_read_stays_readable(stage: Stage) -> None:
    stage.write(40)
    stage.note_committed()
    batches = stage.reader(0).batches()
    found = next(batches).column("offset").to_pylist()
    for path in stage.segment_files():
        path.unlink()
    for rows in batches:
        found += rows.column("offset").to_pylist()
    assert found == list(range(120))


# -- what is doubted ----------------------------------------------------------------------------


def test_what_retention_took_is_doubted(stage: Stage) -> None:
    stage.write(40)
    stage.note_committed()
    for path in stage.segment_files()[:2]:
        path.unlink()
    found, doubt = until_doubt(stage.reader(0))
    assert (found, doubt.next_offset) == ([], 0)
    assert "begins at" in doubt.reason


def test_a_segment_that_is_missing_in_the_middle_is_doubted(stage: Stage) -> None:
    stage.write(40)
    stage.note_committed()
    bases = [int(path.stem) for path in stage.segment_files()]
    stage.segment_files()[1].unlink()
    found, doubt = until_doubt(stage.reader(0))
    assert found == list(range(bases[1]))
    assert doubt.next_offset == bases[1]


def test_a_file_that_ends_too_soon_is_doubted(stage: Stage) -> None:
    stage.write(4)
    stage.note_committed()
    (path,) = stage.segment_files()
    path.write_bytes(path.read_bytes()[:-1])
    found, doubt = until_doubt(stage.reader(0))
    assert (found, doubt.next_offset) == (list(range(9)), 9)


def test_a_bad_batch_is_doubted_and_nothing_of_its_group_was_given(stage: Stage) -> None:
    stage.write(40)
    stage.note_committed()
    path, base = stage.segment_files()[2], int(stage.segment_files()[2].stem)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    found, doubt = until_doubt(stage.reader(0))
    assert found == list(range(base))
    assert doubt.next_offset == base
    assert "CRC" in doubt.reason


def test_a_compaction_that_is_about_to_end_is_doubted(stage: Stage) -> None:
    stage.write(2)
    stage.note_committed()
    (stage.folder / "00000000000000000000.log.swap").touch()
    assert "compaction" in until_doubt(stage.reader(0))[1].reason


def test_a_topic_of_the_same_name_is_doubted(stage: Stage) -> None:
    stage.write(2)
    stage.note_committed()
    assert offsets(stage.reader(0, topic_id=TOPIC_ID)) == list(range(6))
    assert until_doubt(stage.reader(0, topic_id=Uuid(bytes(16)[:-1] + b"x")))[0] == []


def test_an_unreadable_index_of_aborted_transactions_is_doubted(stage: Stage) -> None:
    stage.write(2)
    stage.note_committed()
    (stage.folder / "00000000000000000000.txnindex").write_bytes(b"12345")
    assert "changes all the time" in until_doubt(stage.reader(0))[1].reason
    every = stage.reader(0, isolation=Isolation.READ_UNCOMMITTED)
    assert offsets(every) == list(range(6))


def test_a_wrong_index_costs_time_and_no_rows(stage: Stage) -> None:
    stage.write(40)
    stage.note_committed()
    first = stage.segment_files(".index")[0]
    first.write_bytes(bytes(range(80)))
    assert offsets(stage.reader(5, 30)) == list(range(5, 30))


# -- a stopped cluster --------------------------------------------------------------------------


def test_of_a_stopped_cluster_what_is_known_as_committed_can_be_read(stage: Stage) -> None:
    stage.write(10)
    stage.note_committed(20)
    assert bounds([stage.data], PARTITION) == (0, 20)
    assert bounds([stage.folder.parent], PARTITION) == (0, 20)
    assert bounds([stage.folder.parent.parent], PARTITION) == (0, 20)
    with pytest.raises(DoubtError, match="no folder of it is here"):
        bounds([stage.data], ("u", Partition(0)))


def test_an_undecided_transaction_ends_what_readers_of_committed_records_see(stage: Stage) -> None:
    stage.write(2)
    writer, other = Writer(7), Writer(8)
    other.write(stage.log, 2)
    writer.write(stage.log, 2)
    other.end(stage.log, committed=True)
    stage.write(2)
    stage.note_committed()
    assert bounds([stage.data], PARTITION, COMMITTED) == (0, 8)
    writer.end(stage.log, committed=False)
    stage.note_committed()
    assert bounds([stage.data], PARTITION, COMMITTED) == (0, stage.log.end)


def test_what_was_deleted_of_an_undecided_transaction_does_not_count(stage: Stage) -> None:
    Writer(7).write(stage.log, 2)
    stage.write(2)
    stage.log.advance_start(3)
    stage.note_committed()
    assert bounds([stage.data], PARTITION, COMMITTED) == (3, 3)
    assert bounds([stage.data], PARTITION) == (3, 8)


def test_a_stopped_cluster_s_file_that_holds_something_else_is_doubted(stage: Stage) -> None:
    stage.write(2)
    stage.note_committed()
    (path,) = stage.segment_files()
    path.write_bytes(bytes(100))
    with pytest.raises(DoubtError, match="no batch at byte 0"):
        bounds([stage.data], PARTITION, COMMITTED)
