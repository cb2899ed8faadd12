"""One byte of an index file is wrong after a clean stop: every read still gives what a list of all
records gives; no reader skips one."""

from collections.abc import Iterator
from random import Random

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, open_logs, produce, result_of
from harness.logs.transactions import Writer, read_committed
from harness.suite.budgets import Histories
from tidelog.node.log.log import Log
from tidelog.node.log.marks import MARK_NAME, LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.wire.records import iterate_batches, iterate_records, place_batch

SETTINGS = LogSettings(segment_bytes=9_000, index_interval_bytes=400)
FLIPS = 30
PRODUCERS = 3

pytestmark = pytest.mark.slow


class Written:
    """A log after a clean stop, and what was written to it."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.disk = MemoryDisk()
        self.stamps: list[tuple[int, int]] = []
        """Of each record: offset and timestamp."""
        self.ends: list[int] = []
        """Where each batch ends."""
        logs = open_logs(self.disk.directory(), settings=SETTINGS)
        log = logs.create("t", 0, TOPIC_ID, SETTINGS)
        self.write(log, rng)
        logs.close_clean({log.name.key: log.end})
        self.disk.kill()
        self.left = {name: bytes(self.place.content(name)) for name in self.place.names()}
        self.mark = bytes(self.disk.directory().content(MARK_NAME))

    def write(self, log: Log, rng: Random) -> None:
        gaps = rng.random() < 0.5
        for _ in range(90):
            count = rng.randint(1, 4)
            stamp = NOW_MS + rng.choice([0, 0, 0, 5, 5, 9, rng.randrange(12), len(self.stamps)])
            view = batch(count, size=rng.choice([0, 30, 300]), timestamp=stamp)
            if gaps:
                base = log.end + rng.choice([0, 0, 3])
                place_batch(view, 0, base_offset=base, leader_epoch=0)
                log.append_as_follower(NOW, NOW_MS, view)
            else:
                produce(log, view)
            self.stamps += [(one.offset, one.timestamp) for one in iterate_records(view)]
            self.ends.append(log.end)
        self.end = log.end

    @property
    def place(self) -> MemoryDirectory:
        return self.disk.directory().directory("t-0")

    def restart(self, name: str = "", at: int = 0, bits: int = 0) -> Log:
        """All is as the stop left it, but for these bits of one byte of a file."""
        self.disk.kill()
        for one, content in self.left.items():
            self.place.open(one).truncate(0)
            self.place.open(one).append((content,))
        self.disk.directory().content(MARK_NAME)[:] = self.mark
        if name:
            self.place.content(name)[at] ^= bits
        logs = open_logs(self.disk.directory(), settings=SETTINGS)
        assert logs.last_stop is LastStop.CLEAN
        log = logs.log("t", 0)
        assert log is not None
        return log

    def wrong(self, log: Log) -> Iterator[str]:
        """Where the log's answers differ from those of the list."""
        yield from self.wrong_reads(log)
        yield from self.wrong_times(log)
        yield from self.wrong_largest(log)

    def wrong_reads(self, log: Log) -> Iterator[str]:
        for offset in range(self.end):
            found = read(log, offset)
            expected = next(at for at, _ in self.stamps if at >= offset)
            if found != expected:
                yield f"offset {offset}: {found}, not {expected}"

    def wrong_times(self, log: Log) -> Iterator[str]:
        for stamp in sorted({stamp + 1 for _, stamp in self.stamps} | {NOW_MS}):
            at = result_of(log.offset_for_timestamp(stamp, log.end))
            naive = next((offset for offset, one in self.stamps if one >= stamp), None)
            if (at and at.offset) != naive:
                yield f"timestamp {stamp - NOW_MS}: {at}, not {naive}"

    def wrong_largest(self, log: Log) -> Iterator[str]:
        for limit in self.ends[::5]:
            below = min((-stamp, offset) for offset, stamp in self.stamps if offset < limit)
            newest = result_of(log.offset_of_max_timestamp(limit))
            if newest is None or (-newest.timestamp, newest.offset) != below:
                yield f"largest below {limit}: {newest}, not {below}"


def read(log: Log, offset: int) -> int | None:
    """The first offset from there on that a reader gets, from batches that begin and end whole."""
    piece = log.read(offset, 700, log.end, min_one=True)
    if piece is None:
        return None
    content = piece.file.read(piece.position, piece.size)
    batches = list(iterate_batches(content))
    assert sum(len(one) for _, one in batches) == piece.size
    return next(
        record.offset
        for _, one in batches
        for record in iterate_records(one)
        if record.offset >= offset
    )


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_byte_of_an_index_makes_no_reader_skip_a_record(
    suffix: str, histories: Histories
) -> None:
    histories.run(lambda seed: _flip_bytes_of(suffix, seed))


def _flip_bytes_of(suffix: str, seed: int) -> None:
    rng = Random(f"{suffix} {seed}")
    written = Written(seed)
    assert list(written.wrong(written.restart())) == []
    names = [name for name in written.left if name.endswith(suffix) and written.left[name]]
    for _ in range(FLIPS):
        name = rng.choice(names)
        at, bits = rng.randrange(len(written.left[name])), rng.randrange(1, 256)
        log = written.restart(name, at, bits)
        assert list(written.wrong(log)) == [], (name, at, bits)


class Transactions(Written):
    """The same of a log whose records belong to transactions, some of which were aborted."""

    def write(self, log: Log, rng: Random) -> None:
        self.committed: list[int] = []
        writers = [Writer(number) for number in range(PRODUCERS)]
        pending = dict[int, list[int]]()
        for _ in range(120):
            writer = rng.choice(writers)
            if writer.producer_id in pending and rng.random() < 0.4:
                kept = rng.random() < 0.5
                writer.end(log, committed=kept, high_watermark=log.end)
                ended = pending.pop(writer.producer_id)
                self.committed += ended if kept else []
            else:
                done = writer.write(log, rng.randint(1, 3), size=rng.choice([10, 200]))
                offsets = range(done.first_offset, done.last_offset + 1)
                pending.setdefault(writer.producer_id, []).extend(offsets)
        self.stable = min((offsets[0] for offsets in pending.values()), default=log.end)
        self.end = log.end

    def wrong(self, log: Log) -> Iterator[str]:
        """A reader of committed records sees those, and no aborted one."""
        wanted = sorted(offset for offset in self.committed if offset < self.stable)
        for start in (0, self.end // 3, self.end // 2):
            answers = read_committed(log, start, self.stable, 900)
            seen = [record.offset for answer in answers for record in answer.records]
            if seen != [offset for offset in wanted if offset >= start]:
                yield f"from {start}: {seen}"


def test_a_wrong_byte_of_a_transaction_index_shows_nothing_aborted_and_hides_nothing(
    histories: Histories,
) -> None:
    histories.run(_flip_bytes_of_a_transaction_index)


def _flip_bytes_of_a_transaction_index(seed: int) -> None:
    rng = Random(seed)
    written = Transactions(seed)
    assert list(written.wrong(written.restart())) == []
    suffixes = (".txnindex", ".txncheck", ".index")
    names = [name for name in written.left if name.endswith(suffixes) and written.left[name]]
    assert any(name.endswith(".txncheck") for name in names)
    for _ in range(3 * FLIPS):
        name = rng.choice(names)
        at, bits = rng.randrange(len(written.left[name])), rng.randrange(1, 256)
        log = written.restart(name, at, bits)
        assert list(written.wrong(log)) == [], (name, at, bits)
