"""Cutting a log from behind, starting it over, and moving its start."""

import pytest

from harness.logs.batches import batch, produce, values_of
from harness.logs.one_log import FIRST, SIZE, Broker
from tidelog.wire.errors import Rejected
from tidelog.wire.records import iterate_batches


def test_a_cut_takes_the_batch_that_holds_the_offset() -> None:
    broker = Broker()
    log = broker.logs.log("t", 0)
    assert log is not None
    assert log.truncate_to(99) == 24
    assert log.truncate_to(22) == 22
    assert log.truncate_to(21) == 20
    assert log.truncate_to(5) == 4
    assert values_of(log) == [0, 1, 2, 3]
    assert [name for name in broker.place.names() if name.endswith(".log")] == [FIRST]
    assert produce(log, batch(2, producer=(7, 0, 2))).duplicate
    assert not produce(log, batch(2, producer=(7, 0, 4))).duplicate


def test_a_cut_forgets_epochs_and_later_snapshots() -> None:
    broker = Broker()
    log = broker.logs.log("t", 0)
    assert log is not None
    produce(log, batch(), epoch=3)
    log.truncate_to(12)
    assert log.epochs.entries() == [(0, 0)]
    assert [name for name in broker.place.names() if name.endswith(".snapshot")] == [
        f"{10:020d}.snapshot"
    ]
    log.truncate_to(0)
    assert (log.start, log.end, len(log.producers)) == (0, 0, 0)


def test_a_cut_below_the_recovery_point_is_checkpointed_before_it_happens() -> None:
    broker = Broker(12, flushed=12)
    log = broker.logs.log("t", 0)
    assert log is not None
    broker.disk.calls.clear()
    log.truncate_to(13)
    operations = [call for call in broker.disk.calls if call[0] in {"replace", "truncate"}]
    assert operations[0] == ("replace", "recovery-point-offset-checkpoint")
    broker.lose_power()
    broker.disk.lose_power()
    assert values_of(broker.restart()) == list(range(12))


def test_a_log_that_starts_over_keeps_its_new_place_after_a_kill() -> None:
    broker = Broker()
    log = broker.logs.log("t", 0)
    assert log is not None
    log.truncate_fully_and_start_at(100)
    assert (log.start, log.end) == (100, 100)
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end) == (100, 100)
    assert produce(log, batch(), epoch=1).first_offset == 100


def test_segments_below_the_start_go_when_purged() -> None:
    broker = Broker()
    log = broker.logs.log("t", 0)
    assert log is not None
    piece = log.read(0, 1000, 24, min_one=True)
    assert piece is not None
    log.advance_start(11)
    assert (log.start, log.size_bytes) == (11, 7 * SIZE)
    assert len(list(iterate_batches(piece.file.read(0, piece.size)))) == 3, "still being sent"
    broker.logs.purge()
    assert FIRST in broker.place.names(), "after a power loss nobody would know it for deleted"
    broker.checkpoint()
    broker.logs.purge()
    assert FIRST not in broker.place.names()
    log.advance_start(3)
    assert log.start == 11
    with pytest.raises(Rejected, match="OFFSET_OUT_OF_RANGE"):
        log.advance_start(25)
