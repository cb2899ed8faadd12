"""What a power loss must not undo: each test loses everything that was not synced."""

import errno

import pytest

from harness.logs.batches import NOW_MS, batch, by_time, flush, produce, values_of
from harness.logs.one_log import FIRST, SECOND, SIZE, Broker
from tidelog.node.log.log import Log

FIRST_INDEX = FIRST.replace(".log", ".index")
FIRST_TIMES = FIRST.replace(".log", ".timeindex")


def log_of(broker: Broker) -> Log:
    log = broker.logs.log("t", 0)
    assert log is not None
    return log


def lose(broker: Broker) -> None:
    broker.lose_power()
    broker.disk.lose_power()


def test_a_flush_keeps_the_indexes_of_sealed_segments() -> None:
    broker = Broker(12, flushed=12)
    before = [bytes(broker.place.content(name)) for name in (FIRST_INDEX, FIRST_TIMES)]
    assert all(before)
    lose(broker)
    assert before == [broker.place.read_all(name) for name in (FIRST_INDEX, FIRST_TIMES)]


def test_a_flush_keeps_names_snapshots_and_epochs() -> None:
    broker = Broker(12, flushed=12)
    names = broker.place.names()
    lose(broker)
    assert broker.place.names() == names
    assert values_of(broker.restart()) == list(range(24))
    assert broker.place.size(f"{20:020d}.snapshot")
    assert broker.place.read_all("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert broker.place.size("partition.metadata")


def test_a_segment_is_kept_that_began_when_there_was_no_room_for_its_snapshot() -> None:
    """What is written to it next is vouched for when it is flushed: its name must be, too."""
    broker = Broker(12, flushed=12)
    log = log_of(broker)
    broker.disk.failing["replace"] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        log.roll(NOW_MS)
    broker.disk.failing.clear()
    produce(log, batch(), epoch=0)
    flush(log)
    end = log.end
    lose(broker)
    assert values_of(broker.restart()) == list(range(end))


def test_an_index_made_anew_is_kept() -> None:
    broker = Broker(12, flushed=11)
    broker.kill()
    for name in (FIRST_INDEX, FIRST_TIMES):
        broker.place.content(name)[:] = b"x"
        broker.place.syncable(name).sync()
    by_time(broker.restart(), 0, 24)
    right = bytes(broker.place.content(FIRST_TIMES))
    lose(broker)
    assert broker.place.content(FIRST_TIMES) == right != b"x"
    assert broker.place.content(FIRST_INDEX) != b"x"


def test_what_a_start_cut_stays_cut() -> None:
    broker = Broker(8)
    flush(log_of(broker))  # without a checkpoint: the next start does not know of it
    lose(broker)
    broker.place.content(SECOND)[SIZE + 70] ^= 1
    broker.place.syncable(SECOND).sync()
    assert values_of(broker.restart()) == list(range(12))
    lose(broker)
    assert broker.place.size(SECOND) == SIZE
    assert values_of(broker.restart()) == list(range(12))


def test_segments_a_start_removed_stay_removed() -> None:
    broker = Broker(12)
    flush(log_of(broker))
    lose(broker)
    broker.place.content(FIRST)[70] ^= 1
    broker.place.syncable(FIRST).sync()
    assert values_of(broker.restart()) == []
    lose(broker)
    assert SECOND not in broker.place.names()
