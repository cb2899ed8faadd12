"""Compaction goes no faster than it is told: every byte counts, and counts once."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, compact
from tidelog.kernel.files import Directory
from tidelog.kernel.limits import MIB
from tidelog.node.log.cleaning import Cleaned, Finished, Job, clean
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.cleaner_worker import Throttle

LARGEST_BATCH = 100_000
AT_A_TIME = 4 * MIB + LARGEST_BATCH


class Told:
    """What a pass tells its throttle, and what it says of itself at its end."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.end: Finished | None = None

    def clean(self, directory: Directory, job: Job) -> Iterator[Cleaned | Finished]:
        for done in clean(directory, job, self.sizes.append):
            if isinstance(done, Finished):
                self.end = done
            yield done


@pytest.mark.parametrize(
    ("segment_bytes", "value_bytes", "batches"), [(5_000, 900, 40), (6 * MIB, 90_000, 140)]
)
def test_a_pass_tells_every_byte_it_reads_and_writes(
    segment_bytes: int, value_bytes: int, batches: int
) -> None:
    """Also of segments that are smaller than what is read at a time."""
    settings = LogSettings(compact=True, delete=False, segment_bytes=segment_bytes)
    logs = open_logs(MemoryDisk().directory(), settings=settings)
    log = logs.create("t", 0, TOPIC_ID, settings)
    rng = Random(1)
    for at in range(batches):
        append(log, [(b"k%d" % (at % 9), rng.randbytes(value_bytes))])
    log.roll(NOW_MS)
    flush(log)
    size = log.size_bytes
    told = Told()
    compact(logs, log, cleaner=told.clean)
    assert told.end is not None
    assert told.end.bytes_read == 2 * size, "once for the keys, once for the records"
    assert 0 < told.end.bytes_written < size
    assert sum(told.sizes) == told.end.bytes_read + told.end.bytes_written
    assert max(told.sizes) <= AT_A_TIME, "a large step at once is a pause at once"


class Clock:
    """Stands still but for who sleeps, and for what the work takes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("seed", range(20))
def test_no_more_bytes_go_through_than_the_rate_allows(seed: int) -> None:
    rng, clock = Random(seed), Clock()
    rate = rng.choice([1.0, 1_000.0, 1e6])
    throttle = Throttle(rate, clock.read, clock.sleep)
    started, through = clock.now, 0
    for _ in range(200):
        size = rng.choice([0, 1, 10, round(rate), 1 << 20])
        throttle(size)
        through += size
        # What is too short to sleep for is slept for later.
        assert clock.now - started >= through / rate - 0.005
        clock.now += rng.choice([0, 0, 0.001, 3.0])


def test_who_was_slow_may_not_catch_up_at_once() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock.read, clock.sleep)
    clock.now += 60
    throttle(500)
    assert clock.slept == [pytest.approx(0.5)]


def test_work_slower_than_the_rate_is_not_held_up() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock.read, clock.sleep)
    times = []
    for _ in range(10):
        throttle(4)
        clock.now += 0.1
        times.append(clock.now)
    assert clock.slept == []
    assert [after - before for before, after in pairwise(times)] == [pytest.approx(0.1)] * 9
