"""Transactions in a log: who may write when, what a marker does, and how far a reader may go."""

import errno

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, new_log, open_logs, produce
from harness.logs.transactions import Writer, aborted, index_files, known_of, stable_offsets
from tidelog.node.log.log import Log
from tidelog.node.log.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.node.log.settings import HOUR_MS, LogSettings
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.log_files import Aborted
from tidelog.wire.records import APPEND_TIME_BIT, EndMarker, iterate_batches, read_marker


@pytest.fixture
def log() -> Log:
    return new_log(MemoryDisk().directory())


def refusal_of(action: object, *args: object, **named: object) -> ErrorCode:
    assert callable(action)
    with pytest.raises(Rejected) as caught:
        action(*args, **named)
    return caught.value.code


# -- who may write


def test_while_its_transaction_is_open_a_producer_writes_nothing_outside(log: Log) -> None:
    one, other = Writer(7), Writer(8)
    one.write(log)
    assert refusal_of(one.write, log, plain=True) is ErrorCode.INVALID_TXN_STATE
    assert other.write(log, plain=True).first_offset == 1
    one.end(log, committed=True)
    assert one.write(log, plain=True).first_offset == 3


def test_nor_does_it_in_a_new_epoch(log: Log) -> None:
    one = Writer()
    one.write(log)
    one.bump()
    assert refusal_of(one.write, log, plain=True) is ErrorCode.INVALID_TXN_STATE
    assert one.write(log).first_offset == 1
    producer = log.producers.get(7)
    assert producer is not None
    assert (producer.epoch, producer.txn_start) == (1, 0), "it is the same transaction still"


def test_a_repeated_batch_is_known_whatever_became_of_its_transaction(log: Log) -> None:
    one = Writer()
    one.write(log)
    one.end(log, committed=True)
    one.sequence = 0
    assert one.write(log) == (0, 0, -1, 0, True)


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on(log: Log) -> None:
    one = Writer()
    one.write(log, 3)
    one.end(log, committed=True)
    assert one.write(log).first_offset == 4
    one.sequence = 9
    assert refusal_of(one.write, log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_a_higher_epoch_begins_it(log: Log) -> None:
    one = Writer()
    one.write(log, 3)
    before = Writer()
    before.sequence = 3
    one.bump()
    one.end(log, committed=False)
    assert refusal_of(before.write, log) is ErrorCode.INVALID_PRODUCER_EPOCH
    one.sequence = 1
    assert refusal_of(one.write, log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.sequence = 0
    assert one.write(log).first_offset == 4


def test_after_a_marker_for_a_producer_that_is_not_known_its_sequence_begins_at_0(log: Log) -> None:
    one = Writer(7, 4)
    one.end(log, committed=True)
    one.sequence = 5
    assert refusal_of(one.write, log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.sequence = 0
    assert one.write(log).first_offset == 1


# -- markers


def test_a_marker_takes_one_offset_and_says_who_ended_what(log: Log) -> None:
    one = Writer(7, 3)
    one.write(log)
    done = one.end(log, committed=False, coordinator=5, epoch=2)
    assert (done.first_offset, done.last_offset, log.end) == (1, 1, 2)
    piece = log.read(1, 1000, 2, min_one=True)
    assert piece is not None
    ((header, view),) = iterate_batches(piece.file.read(piece.position, piece.size))
    assert (header.base_offset, header.partition_leader_epoch, len(view)) == (1, 2, 78)
    assert read_marker(header, view) == EndMarker(7, 3, 5, committed=False)


def test_a_marker_of_an_older_producer_epoch_is_refused(log: Log) -> None:
    old, new = Writer(7, 1), Writer(7, 2)
    new.write(log)
    assert refusal_of(old.end, log, committed=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end == 1


def test_the_coordinator_of_the_last_marker_is_known(log: Log) -> None:
    one = Writer()
    one.write(log)
    one.end(log, committed=True, coordinator=5)
    one.write(log)
    check = log.producers.check_coordinator
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal_of(check, EndMarker(7, 0, 4, committed=True)) is fenced
    check(EndMarker(7, 0, 5, committed=True))
    check(EndMarker(8, 0, 0, committed=True))


def test_the_coordinator_s_epoch_outlives_its_producer_s(log: Log) -> None:
    one = Writer()
    one.end(log, committed=True, coordinator=5)
    one.bump()
    one.write(log)
    check = log.producers.check_coordinator
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal_of(check, EndMarker(7, 1, 4, committed=True)) is fenced


def test_whose_markers_its_broker_vouches_for_is_not_asked_of_the_log(log: Log) -> None:
    one = Writer()
    one.end(log, committed=True, coordinator=1 << 30)
    one.write(log)
    assert one.end(log, committed=False, coordinator=4).first_offset == 2
    known = log.producers.get(7)
    assert known is not None
    assert (known.txn_start, known.coordinator_epoch) == (-1, 4)


def test_a_marker_that_is_there_is_not_written_again(log: Log) -> None:
    one = Writer()
    one.write(log)
    first = one.end(log, committed=True, coordinator=1)
    again = one.end(log, committed=True, coordinator=2)
    assert (again.first_offset, again.duplicate, log.end) == (first.first_offset, True, 2)


def test_what_is_not_the_same_marker_is_written(log: Log) -> None:
    one = Writer()
    one.end(log, committed=True)
    assert not one.end(log, committed=False).duplicate, "of another kind"
    one.write(log)
    assert not one.end(log, committed=False).duplicate, "there is something to end"
    one.write(log, plain=True)
    assert not one.end(log, committed=False).duplicate, "it has written since"
    one.bump()
    assert not one.end(log, committed=False).duplicate, "of a newer epoch"
    assert log.end == 7


def test_a_marker_carries_the_broker_s_time_where_the_topic_wants_that() -> None:
    log = new_log(MemoryDisk().directory(), LogSettings(log_append_time=True))
    Writer().end(log, committed=True)
    header = log.segments[0].header_at(0)
    assert header.attributes & APPEND_TIME_BIT
    assert header.max_timestamp == NOW_MS


def test_what_coordinators_write_has_no_sequence(log: Log) -> None:
    one = Writer()
    one.sequence = -1
    one.write(log)
    one.sequence = -1
    assert one.write(log).first_offset == 1
    one.end(log, committed=True)
    one.sequence = -1
    assert one.write(log).first_offset == 3


# -- the last stable offset


def test_it_is_where_the_oldest_open_transaction_begins(log: Log) -> None:
    one, other = Writer(7), Writer(8)
    produce(log, batch(2))
    one.write(log)  # 2
    other.write(log)  # 3
    assert stable_offsets(log, range(5)) == [0, 1, 2, 2, 2]
    one.end(log, committed=True)  # 4
    assert log.last_stable_offset(5) == 3


def test_a_marker_that_not_all_in_sync_replicas_have_ends_nothing_yet(log: Log) -> None:
    one = Writer()
    one.write(log, 2)  # 0, 1
    one.end(log, committed=True)  # 2
    produce(log, batch())
    assert stable_offsets(log, range(5)) == [0, 0, 0, 3, 4]


def test_of_those_that_wait_for_it_the_oldest_counts(log: Log) -> None:
    early, late, short = Writer(7), Writer(8), Writer(9)
    early.write(log)  # 0
    late.write(log)  # 1
    early.end(log, committed=True)  # 2
    short.write(log)  # 3
    short.end(log, committed=False)  # 4
    late.end(log, committed=True)  # 5
    assert stable_offsets(log, range(7)) == [0, 0, 0, 1, 1, 1, 6]


def test_it_is_never_below_the_start(log: Log) -> None:
    one = Writer()
    one.write(log)
    produce(log, batch(5))
    log.advance_start(4)
    assert log.last_stable_offset(6) == 4


def test_what_is_settled_is_not_remembered(log: Log) -> None:
    one = Writer()
    for _ in range(50):
        one.write(log)
        one.end(log, committed=True, high_watermark=log.end)
    assert len(list(log.producers.unstable.ended)) <= 1


# -- the index of aborted transactions


def test_an_aborted_transaction_is_told_to_who_reads_of_it(log: Log) -> None:
    one, other = Writer(7), Writer(8)
    produce(log, batch())
    one.write(log, 2)  # 1, 2
    other.write(log)  # 3
    one.end(log, committed=False)  # 4
    other.end(log, committed=True)  # 5
    assert index_files(log) == [Aborted(1, 7, 4, 3)], "undecided from 3 on, by then"
    assert aborted(log, 0, log.end) == {(7, 1)}
    assert aborted(log, 2, log.end) == {(7, 1)}
    assert aborted(log, 4, log.end) == {(7, 1)}
    assert aborted(log, 5, log.end) == set()
    assert aborted(log, 0, 1) == set(), "nothing of it is sent"


def test_the_file_comes_into_being_with_the_first(log: Log) -> None:
    one = Writer()
    one.write(log)
    one.end(log, committed=True)
    assert not [name for name in log.directory.names() if name.endswith(".txnindex")]
    one.write(log)
    one.end(log, committed=False)
    assert log.directory.size(f"{0:020d}.txnindex") == 34


def test_a_marker_with_nothing_to_abort_has_no_entry(log: Log) -> None:
    Writer().end(log, committed=False)
    assert index_files(log) == []


def test_an_entry_stands_beside_its_marker_and_is_found_from_afar() -> None:
    log = new_log(MemoryDisk().directory(), LogSettings(segment_bytes=600))
    long = Writer(7)
    long.write(log)
    for number in range(20, 30):
        short = Writer(number)
        short.write(log, size=200)
        short.end(log, committed=False)
    end = long.end(log, committed=False).last_offset
    assert len(log.segments) > 4
    assert index_files(log)[-1] == Aborted(0, 7, end, end + 1)
    assert index_files(log)[0].last_stable_offset == 0
    assert aborted(log, 0, log.end, 100) == {(7, 0)}
    assert aborted(log, 1, log.end, 300) == {(7, 0), (20, 1)}
    assert aborted(log, end, log.end) == {(7, 0)}


def test_what_begins_behind_the_bytes_that_are_sent_is_not_told(log: Log) -> None:
    for number in range(5):
        writer = Writer(number)
        writer.write(log)
        writer.end(log, committed=False)
    size = len(Writer().batch())
    assert aborted(log, 0, log.end, size) == {(0, 0)}
    assert aborted(log, 2, log.end, size + 80) == {(1, 2)}
    assert aborted(log, 2, log.end, 3 * size + 80) == {(1, 2), (2, 4)}
    assert aborted(log, 0, log.end) == {(number, 2 * number) for number in range(5)}


class NoRoomForIndexes(MemoryDisk):
    """Its files of segments grow, those beside them cannot."""

    full = False

    def note(self, operation: str, name: str) -> None:
        if self.full and operation == "append" and name.endswith("index"):
            raise OSError(errno.ENOSPC, "disk is full", name)
        super().note(operation, name)


def test_a_full_disk_loses_no_entry() -> None:
    disk = NoRoomForIndexes()
    log = new_log(disk.directory())
    one = Writer()
    one.write(log)
    disk.full = True
    assert one.end(log, committed=False).first_offset == 1, "the marker is in the log"
    assert index_files(log) == []
    assert aborted(log, 0, log.end) == {(7, 0)}
    with pytest.raises(OSError, match="full"):
        log.roll(NOW_MS)
    disk.full = False
    one.write(log)
    one.end(log, committed=False)
    assert [row.first_offset for row in index_files(log)] == [0, 2]


# -- who stays


def test_who_has_a_transaction_open_does_not_expire(log: Log) -> None:
    one = Writer()
    one.write(log)
    log.expire_producers(NOW_MS + 48 * HOUR_MS)
    assert len(log.producers) == 1
    one.end(log, committed=True)
    log.expire_producers(NOW_MS + 48 * HOUR_MS)
    assert len(log.producers) == 0


# -- restarts and cuts


def lived(log: Log) -> None:
    """Transactions of every kind, over several segments; two stay open."""
    open_one, other = Writer(1), Writer(2)
    for number in range(6):
        short = Writer(10 + number, number)
        short.write(log, 2, size=60)
        if number == 1:
            open_one.write(log)
        produce(log, batch(size=100))
        short.end(log, committed=number % 2 == 0, coordinator=3)
        if number == 3:
            other.write(log, size=60)
    short = Writer(10, 1)
    short.end(log, committed=False, coordinator=4)


def all_of(log: Log) -> tuple[object, ...]:
    """What is known of its producers and transactions; a high watermark that rose is not told."""
    copy = decode_snapshot(encode_snapshot(log.producers), place="here")
    stable = [copy.unstable.first(at) for at in range(log.end + 1)]
    return known_of(log.producers), index_files(log), stable


SMALL = LogSettings(segment_bytes=700, index_interval_bytes=100)


@pytest.mark.parametrize("how", ["killed", "stopped", "power lost", "flushed, power lost"])
def test_after_a_restart_all_is_known_as_before(how: str) -> None:
    disk = MemoryDisk()
    logs = open_logs(disk.directory(), settings=SMALL)
    log = logs.create("t", 0, TOPIC_ID, SMALL)
    lived(log)
    before = all_of(log)
    assert len(log.segments) > 2
    assert len(index_files(log)) == 3
    boot = "boot-1"
    if "flushed" in how:
        flush(log)
    if how == "stopped":
        logs.close_clean({})
    if "power lost" in how:
        flush(log)
        disk.lose_power()
        boot = "boot-2"
    disk.kill()
    again = open_logs(disk.directory(), settings=SMALL, boot_id=boot).log("t", 0)
    assert again is not None
    assert all_of(again) == before
    end = again.end
    assert Writer(1).end(again, committed=False).first_offset == end
    assert index_files(again)[-1].first_offset == 6
