"""`log verify` and `log dump` of what a log keeps of transactions."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.transactions import Writer
from harness.logs.verified import around, verified
from tidelog.node.log.log import Log
from tidelog.node.log.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.node.log.producers import Producers, WrittenMarker
from tidelog.node.log.settings import LogSettings
from tidelog.tools.log_files.decoders import control_record
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.kinds import FileKind
from tidelog.tools.log_files.small_files import small_sheet
from tidelog.wire.log_files import Aborted, decode_aborted, encode_aborted
from tidelog.wire.records import EndMarker, Record, build_marker, iterate_records

SETTINGS = LogSettings(segment_bytes=700)
INDEX = f"{0:020d}.txnindex"
"""Of the first segment: two transactions that were aborted."""


def lived(log: Log) -> None:
    one, other = Writer(7), Writer(8)
    one.write(log)  # 0
    other.write(log)  # 1
    one.end(log, committed=False, coordinator=2)  # 2
    one.write(log)  # 3
    one.end(log, committed=False, coordinator=2)  # 4
    log.roll(NOW_MS)
    other.write(log)  # 5
    other.end(log, committed=True, coordinator=3)  # 6
    other.write(log)  # 7


def left(*, clean: bool = True, flushed: bool = False) -> MemoryDirectory:
    """A log as a stop or a kill left it."""
    disk = MemoryDisk()
    logs = open_logs(disk.directory(), settings=SETTINGS)
    lived(logs.create("t", 0, TOPIC_ID, SETTINGS))
    if flushed:
        (log,) = logs
        flush(log)
        checkpoint = logs.checkpoint({})
        checkpoint.write()
        logs.checkpointed(checkpoint)
    if clean:
        logs.close_clean({})
    disk.kill()
    return disk.directory()


def index_of(top: MemoryDirectory) -> bytearray:
    return top.directory("t-0").content(INDEX)


def said(report: Report) -> list[str]:
    """Violations, and remarks in brackets."""
    wrong = [one.reason for one in report.violations]
    return wrong + [f"({one.reason})" for one in report.remarks]


def test_what_was_left_is_right() -> None:
    assert said(verified(left(), around())) == []
    assert said(verified(left(clean=False), around())) == []
    assert decode_aborted(bytes(index_of(left())), place="") == [
        Aborted(0, 7, 2, 1),
        Aborted(3, 7, 4, 1),
    ]


def put_index(top: MemoryDirectory, rows: list[Aborted]) -> None:
    """One without a checksum, as an earlier version left it."""
    index_of(top)[:] = encode_aborted(rows)
    top.directory("t-0").unlink(f"{0:020d}.txncheck")


def test_an_index_that_has_not_its_checksum_is_made_anew_and_no_violation() -> None:
    top = left()
    index_of(top)[:] = encode_aborted(ROWS[:1])
    assert said(verified(top, around())) == ["(wrong checksum: it is going to be made anew)"]


ROWS = [Aborted(0, 7, 2, 1), Aborted(3, 7, 4, 1)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (ROWS[:1], "lacks what was aborted at offset 4"),
        ([], "lacks what was aborted at offset 2"),
        ([ROWS[0]._replace(producer_id=8), ROWS[1]], "says (0, 8, 2, 1), the log (0, 7, 2, 1)"),
        ([ROWS[0], ROWS[1]._replace(first_offset=2)], "says (2, 7, 4, 1), the log (3, 7, 4, 1)"),
        (
            [ROWS[0]._replace(last_stable_offset=3), ROWS[1]],
            "says (0, 7, 2, 3), the log (0, 7, 2, 1)",
        ),
        ([ROWS[0], Aborted(1, 8, 3, 1), ROWS[1]], "nothing was aborted at offset 3"),
    ],
)
def test_an_index_that_is_not_what_the_markers_say_is_a_violation(
    rows: list[Aborted], reason: str
) -> None:
    top = left()
    put_index(top, rows)
    assert said(verified(top, around())) == [reason]


@pytest.mark.parametrize(
    "content",
    [
        encode_aborted(ROWS)[:-1],
        bytes(68),
        encode_aborted(ROWS[::-1]),
        encode_aborted([ROWS[0], ROWS[1]._replace(last_offset=9)]),
    ],
)
def test_one_that_cannot_be_right_is_made_anew_and_no_violation(content: bytes) -> None:
    top = left()
    index_of(top)[:] = content
    (remark,) = said(verified(top, around()))
    assert remark.startswith("(")
    assert "made anew" in remark


def test_after_a_kill_the_next_start_makes_those_anew_that_it_reads() -> None:
    top = left(clean=False)
    put_index(top, ROWS[:1])
    (remark,) = said(verified(top, around()))
    assert remark == "(lacks what was aborted at offset 4: the next start makes it anew)"
    again = open_logs(top, settings=SETTINGS)
    assert again.offline == {}
    assert bytes(index_of(top)) == encode_aborted(ROWS)


def test_after_a_kill_what_nobody_reads_again_is_a_violation() -> None:
    top = left(clean=False, flushed=True)
    put_index(top, ROWS[:1])
    assert said(verified(top, around())) == ["lacks what was aborted at offset 4"]


def changed(change: Callable[[Producers], None]) -> list[str]:
    """What is said where the last snapshot was changed."""
    top = left()
    place = top.directory("t-0")
    name = max(name for name in place.names() if name.endswith(".snapshot"))
    state = decode_snapshot(bytes(place.content(name)), place=name)
    change(state)
    place.content(name)[:] = encode_snapshot(state)
    return said(verified(top, around()))


def put(producer_id: int, **values: Any) -> Callable[[Producers], None]:
    def change(state: Producers) -> None:
        producer = state.get(producer_id)
        assert producer is not None
        for name, value in values.items():
            setattr(producer, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put(8, txn_start=5), "its transaction is open since 5, the log 7"),
        (put(8, txn_start=-1), "its transaction is open since -1, the log 7"),
        (put(7, txn_start=3), "its transaction is open since 3, the log -1"),
        (put(7, coordinator_epoch=1), "coordinator epoch 1, the log 2"),
        (put(7, epoch=1), "epoch 1, the log 0"),
        (put(7, marker=WrittenMarker(2, committed=False)), "its last marker is"),
        (put(7, marker=WrittenMarker(4, committed=True)), "its last marker is"),
    ],
)
def test_a_snapshot_must_know_the_transactions_of_the_log(
    change: Callable[[Producers], None], reason: str
) -> None:
    (found,) = changed(change)
    assert reason in found


def test_a_snapshot_by_kafka_knows_no_markers() -> None:
    assert changed(put(7, marker=None)) == []


# -- dump


def test_the_end_of_a_transaction_is_told_with_its_coordinator() -> None:
    batch = memoryview(build_marker(EndMarker(7, 0, 5, committed=False), NOW_MS))
    (record,) = iterate_records(batch)
    assert control_record(record) == {"record": "abort", "version": 0, "coordinator_epoch": 5}
    other = Record(0, 0, b"\0\0\0\7", None)
    assert control_record(other) == {"record": "7", "version": 0}


def test_what_was_aborted_is_shown_and_who_has_what_open() -> None:
    place = left().directory("t-0")
    rows = list(small_sheet(place, INDEX, FileKind.TXN_INDEX).rows)
    assert rows[0] == {
        "first_offset": 0,
        "producer_id": 7,
        "last_offset": 2,
        "last_stable_offset": 1,
    }
    name = max(name for name in place.names() if name.endswith(".snapshot"))
    producers = {
        row["producer_id"]: row for row in small_sheet(place, name, FileKind.PRODUCERS).rows
    }
    assert producers[8]["transaction_start"] == 7
    assert producers[7]["transaction_start"] is None
    assert producers[7]["last_marker"] == {"offset": 4, "committed": False}
    assert (producers[7]["coordinator_epoch"], producers[8]["coordinator_epoch"]) == (2, 3)
