"""Random lives of a log in which producers write transactions: it is killed, cut, without power."""

from collections.abc import Callable
from random import Random
from typing import Final

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs
from harness.logs.transaction_model import Model, Written
from harness.logs.transactions import Writer, index_files, known_of, read_committed
from harness.logs.verified import around, verified
from tidelog.node.log.markers import append_marker
from tidelog.node.log.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.node.log.settings import LogSettings
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import EndMarker, build_marker, read_header

SETTINGS: Final = LogSettings(segment_bytes=1_500, index_interval_bytes=200)
PRODUCERS: Final = (1, 2, 3, 4)


class Life:
    """One log, from its first record on."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = MemoryDisk()
        self.boot = 1
        self.model = Model()
        self.writers = {producer: Writer(producer) for producer in PRODUCERS}
        self.coordinator = 0
        self.leader_epoch = 0
        self.high_watermark = 0
        self.lost_power = False
        self.is_known = True
        """Nothing is lost that only deleted batches told: there is something to compare with."""
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS)
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)

    @property
    def place(self) -> MemoryDirectory:
        return self.disk.directory().directory("t-0")

    def run(self, steps: int = 12) -> None:
        rng = self.rng
        for _ in range(rng.randint(3, steps)):
            if not self.is_known:
                return
            for _ in range(rng.randint(1, 15)):
                self.write()
            rng.choice(self.events())()
            self.check()

    def events(self) -> list[Callable[[], None]]:
        return [
            self.is_killed,
            self.is_killed_in_mid_write,
            self.is_stopped,
            self.is_stopped_and_loses_power,
            self.loses_power,
            self.loses_an_index,
            self.truncates,
            self.truncates,
            self.deletes_records,
            self.rolls,
            self.flushes,
            self.checkpoints,
            self.commits,
        ]

    # -- writing

    def write(self) -> None:
        rng = self.rng
        kind = rng.random()
        writer = self.writers[rng.choice(PRODUCERS)]
        if kind < 0.12:
            self.write_plain()
        elif kind < 0.2:
            self.is_refused(writer)
        elif kind < 0.45:
            self.end(writer)
        elif kind < 0.5:
            self.ends_again(writer)
        elif kind < 0.55 and not self.is_open(writer):
            self.write_of(writer, plain=True)
        else:
            self.write_of(writer, plain=False)
        if rng.random() < 0.3:
            self.commits()

    def is_open(self, writer: Writer) -> bool:
        mine = [one for one in self.model.transactions() if one.producer == writer.producer_id]
        return bool(mine) and mine[-1].marker is None

    def write_plain(self) -> None:
        count = self.rng.randint(1, 3)
        view = batch(count, size=self.rng.choice([0, 40, 300]))
        first = self.append(view)
        self.model.written.append(Written(first, count))

    def write_of(self, writer: Writer, *, plain: bool) -> None:
        rng = self.rng
        count = rng.randint(1, 3)
        sequence = writer.sequence
        if not plain and rng.random() < 0.1:
            writer.sequence = -1  # as a group's coordinator writes for a producer
        view = writer.batch(count, plain=plain, size=rng.choice([0, 40, 200]))
        written = writer.sequence
        first = self.append(view)
        writer.sequence = sequence if written < 0 else written + count
        self.model.written.append(
            Written(first, count, writer.producer_id, writer.epoch, written, not plain)
        )

    def append(self, view: memoryview) -> int:
        header = read_header(view)
        done = self.log.append_as_leader(NOW, NOW_MS, view, header, self.leader_epoch)
        assert not done.duplicate
        assert done.first_offset == self.model.end
        return done.first_offset

    def end(self, writer: Writer) -> None:
        """By a marker of its epoch, or one that bumps it; by a new coordinator now and then."""
        if self.rng.random() < 0.2:
            self.coordinator += 1
        if self.rng.random() < 0.4:
            writer.bump()
        committed = self.rng.random() < 0.5
        marker = EndMarker(writer.producer_id, writer.epoch, self.coordinator, committed)
        self.mark(marker)

    def mark(self, marker: EndMarker) -> None:
        there = self.expected_there(marker)
        view = memoryview(build_marker(marker, NOW_MS))
        done = append_marker(self.log, NOW, NOW_MS, view, self.leader_epoch, self.high_watermark)
        if there is not None:
            assert (done.duplicate, done.first_offset) == (True, there)
            return
        assert (done.duplicate, done.first_offset) == (False, self.model.end)
        row = Written(done.first_offset, 1, marker.producer_id, marker.producer_epoch)
        self.model.written.append(row._replace(marker=marker))

    def expected_there(self, marker: EndMarker) -> int | None:
        """Where the very marker is the last thing of its producer."""
        mine = [row for row in self.model.written if row.producer == marker.producer_id]
        # What a group's coordinator writes has no sequence, but it begins a transaction.
        last = mine[-1] if mine else None
        if last is None or last.marker is None or last.epoch != marker.producer_epoch:
            return None
        return last.first if last.marker.committed == marker.committed else None

    def ends_again(self, writer: Writer) -> None:
        """A coordinator, maybe a new one, asks for a marker that is there."""
        mine = [row for row in self.model.written if row.producer == writer.producer_id]
        if mine and mine[-1].marker is not None and mine[-1].epoch == writer.epoch:
            self.mark(mine[-1].marker._replace(coordinator_epoch=self.coordinator))

    def is_refused(self, writer: Writer) -> None:
        mine = [row for row in self.model.written if row.producer == writer.producer_id]
        if not mine or not self.is_known:
            return
        assert mine[-1].epoch <= writer.epoch
        tries: list[tuple[ErrorCode, Callable[[], object]]] = []
        if self.is_open(writer):
            view = writer.batch(plain=True)
            tries.append((ErrorCode.INVALID_TXN_STATE, lambda: self.append(view)))
        epoch = mine[-1].epoch
        old = EndMarker(writer.producer_id, epoch - 1, self.coordinator, committed=True)
        tries.append((ErrorCode.INVALID_PRODUCER_EPOCH, lambda: self.mark(old)))
        known = max((row.marker.coordinator_epoch for row in mine if row.marker), default=-1)
        if known > 0:
            late = EndMarker(writer.producer_id, epoch, known - 1, committed=True)
            tries.append(
                (
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    lambda: self.log.producers.check_coordinator(late),
                )
            )
        ahead = Writer(writer.producer_id, epoch)
        ahead.sequence = 100_000
        gap = ahead.batch()
        tries.append((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda: self.append(gap)))
        code, try_it = self.rng.choice(tries)
        try:
            try_it()
        except Rejected as refused:
            assert refused.code is code
        else:
            raise AssertionError(f"{code.name} was expected")

    # -- what happens to it

    def commits(self) -> None:
        """The high watermark rises to the end of some batch; nobody cuts below it."""
        ends = [row.last + 1 for row in self.model.written]
        above = [end for end in ends if end > self.high_watermark]
        self.high_watermark = self.rng.choice([self.high_watermark, *above])
        self.log.last_stable_offset(self.high_watermark)

    def rolls(self) -> None:
        self.log.roll(NOW_MS)

    def flushes(self) -> None:
        flush(self.log)

    def checkpoints(self) -> None:
        checkpoint = self.logs.checkpoint({self.log.name.key: self.high_watermark})
        checkpoint.write()
        self.logs.checkpointed(checkpoint)
        self.disk.directory().sync()

    def truncates(self) -> None:
        target = self.rng.randint(min(self.high_watermark, self.log.end), self.log.end)
        end = self.log.truncate_to(max(target, self.log.start))
        self.model.cut(end)
        assert self.model.end == end
        self.high_watermark = min(self.high_watermark, end)
        self.leader_epoch += 1
        self.follow_producers()

    def deletes_records(self) -> None:
        self.log.advance_start(
            self.rng.randint(self.log.start, max(self.high_watermark, self.log.start))
        )
        self.checkpoints()
        self.logs.purge()
        # A snapshot that was not synced is gone, and now so is what it was made of.
        self.is_known = self.log.start == 0 or not self.lost_power

    def is_killed(self) -> None:
        self.disk.kill()
        self.is_left_true()
        self.reopen()

    def is_killed_in_mid_write(self) -> None:
        self.disk.kill()
        rng = self.rng
        logs = [name for name in self.place.names() if name.endswith(".log")]
        if logs:
            torn = bytearray(batch(3, size=40))
            torn[:8] = self.model.end.to_bytes(8, "big")
            self.place.content(max(logs)).extend(torn[: rng.randint(1, len(torn) - 1)])
        indexes = [name for name in self.place.names() if name.endswith(".txnindex")]
        if indexes and max(indexes)[:20] == max(logs)[:20]:
            content = self.place.content(max(indexes))
            if content and rng.random() < 0.5:
                del content[-rng.randint(1, len(content)) :]
            else:
                content += rng.randbytes(rng.randint(1, 40))
        self.is_left_true()
        self.reopen()

    def is_stopped(self) -> None:
        self.logs.close_clean({self.log.name.key: self.high_watermark})
        self.disk.kill()
        self.is_left_true()
        self.reopen()

    def is_stopped_and_loses_power(self) -> None:
        """`down --sync`: everything was flushed before."""
        flush(self.log)
        self.logs.close_clean({self.log.name.key: self.high_watermark}, synced=True)
        self.disk.lose_power(self.rng)
        self.boot += 1
        self.reopen()
        self.lost_power = True
        self.is_known = self.log.start == 0
        assert self.log.end == self.model.end

    def loses_power(self) -> None:
        self.disk.lose_power(self.rng)
        self.boot += 1
        self.is_left_true()
        start = self.log.start
        self.reopen()
        self.model.cut(self.log.end)
        self.high_watermark = min(self.high_watermark, self.log.end)
        self.is_known = self.log.start == start == 0
        self.lost_power = True
        self.follow_producers()

    def loses_an_index(self) -> None:
        """Whatever shows that it cannot be right."""
        self.disk.kill()
        indexes = [name for name in self.place.names() if name.endswith(".txnindex")]
        for name in indexes:
            content = self.place.content(name)
            if self.rng.random() < 0.5 and content:
                content[:] = self.rng.choice(
                    [bytes(len(content)), content[:-1], self.rng.randbytes(len(content))]
                )
        self.reopen()

    def is_left_true(self) -> None:
        """`log verify` agrees that nothing is wrong with what was left of transactions.

        All else is looked at by `log_histories_test.py`.
        """
        outside = around(boot_id=f"boot-{self.boot}", interval=SETTINGS.index_interval_bytes)
        found = verified(self.disk.directory(), outside).violations
        assert [one for one in found if one.file.endswith((".txnindex", ".snapshot"))] == []

    def reopen(self) -> None:
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS, boot_id=f"boot-{self.boot}")
        assert self.logs.offline == {}
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)
        # A broker believes the checkpoint, also where what it speaks of is lost.
        self.high_watermark = max(self.high_watermark, self.logs.high_watermark("t", 0))

    def follow_producers(self) -> None:
        """Their clients know what was lost: an epoch that is not there begins anew."""
        for producer, writer in self.writers.items():
            known = self.log.producers.get(producer)
            if known is None:
                writer.epoch, writer.sequence = writer.epoch + 1, 0
            else:
                writer.epoch, writer.sequence = known.epoch, known.next_sequence
        mine = [row.marker.coordinator_epoch for row in self.model.written if row.marker]
        self.coordinator = max([self.coordinator, *mine])

    # -- what must be true

    def check(self) -> None:
        assert self.log.end == self.model.end
        self.check_readers()
        if not self.is_known:
            return
        assert known_of(self.log.producers) == self.model.producers()
        self.check_indexes()
        self.check_last_stable_offset()

    def check_last_stable_offset(self) -> None:
        """Now, and as it would rise with the high watermark; of a copy, for that never falls."""
        log, model = self.log, self.model
        now = max(self.high_watermark, log.start)
        assert log.last_stable_offset(now) == model.last_stable_offset(now, log.start)
        copy = decode_snapshot(encode_snapshot(log.producers), place="here").unstable
        for later in range(now, log.end + 1):
            first = copy.first(later)
            found = later if first is None else min(max(first, log.start), later)
            assert found == model.last_stable_offset(later, log.start)

    def check_indexes(self) -> None:
        """The files: beside each marker, what the batches say."""
        if not self.log.has_files:
            return
        for segment in self.log.segments:  # one that cannot be right is made anew when it is used
            found = self.log.read(max(segment.base, self.log.start), 1, self.log.end, min_one=True)
            if found is not None:
                self.log.aborted(max(segment.base, self.log.start), found, self.log.end)
        base = self.log.segments[0].base
        expected = [row for row in self.model.index() if row.last_offset >= base]
        assert index_files(self.log) == expected

    def check_readers(self) -> None:
        """Whoever reads with small or large fetches sees exactly what is committed."""
        if not self.is_known:
            return
        log, start = self.log, self.log.start
        high_watermark = max(self.high_watermark, start)
        limit = log.last_stable_offset(high_watermark)
        first = self.rng.randint(start, max(limit, start))
        size = self.rng.choice([1, 200, 600, 1 << 20])
        seen: list[int] = []
        for answer in read_committed(log, first, limit, size):
            assert answer.aborted == self.model.aborted(answer.at, answer.behind)
            seen += [record.offset for record in answer.records]
        assert seen == self.model.visible(limit, first)
