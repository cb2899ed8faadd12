"""Random lives of a log, with kills and power losses, against a model that only keeps lists.

The model knows every batch that was acknowledged. After a kill the log must be equal to it; after
a power loss it must be a part of it from the front, and hold all that was flushed.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import (
    NOW,
    NOW_MS,
    TOPIC_ID,
    batch,
    by_time,
    flush,
    of_largest_time,
    open_logs,
    produce,
)
from harness.logs.verified import around, verified
from harness.suite.budgets import Histories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.wire.checkpoints import LOG_STARTS, RECOVERY_POINTS, Offsets, decode_offsets
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import iterate_batches, iterate_records, place_batch

pytestmark = pytest.mark.slow

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=300, segment_ms=50_000)
PRODUCERS = (1, 2)


@dataclass
class Kept:
    """One batch as the model knows it."""

    first: int
    content: bytes
    epoch: int
    producer: tuple[int, int, int] | None
    timestamps: list[int]

    @property
    def end(self) -> int:
        return self.first + len(self.timestamps)


@dataclass
class Model:
    """What was acknowledged."""

    batches: list[Kept] = field(default_factory=list)
    start: int = 0
    end: int = 0
    flushed: int = 0

    def cut(self, end: int) -> None:
        self.batches = [kept for kept in self.batches if kept.end <= end]
        self.end = end
        self.flushed = min(self.flushed, end)

    def has(self, offset: int) -> bool:
        return any(kept.first <= offset < kept.end for kept in self.batches)

    def last_of(self, producer: int) -> list[Kept]:
        """Its last five batches of its newest epoch."""
        own = [kept for kept in self.batches if kept.producer and kept.producer[0] == producer]
        newest = own[-1].producer[1] if own and own[-1].producer else 0
        return [kept for kept in own if kept.producer and kept.producer[1] == newest][-5:]


class LogHistory(RuleBasedStateMachine):
    """One partition in one directory, opened again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.model = Model()
        self.boot = 0
        self.leader_epoch = 0
        self.producers_known = True
        self.epochs_from = 0
        self.clock_ms = NOW_MS
        self.logs = self.open()
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)

    # -- lives

    @property
    def directory(self) -> MemoryDirectory:
        return self.disk.directory()

    def open(self) -> LogDirectory:
        """With a broker's own settings: the topic's come with the metadata, after the logs are
        there."""
        return open_logs(self.directory, boot_id=f"boot-{self.boot}", now_ms=self.clock_ms)

    def is_left_true(self) -> None:
        """`log verify` agrees that nothing is wrong with what was left."""
        outside = around(boot_id=f"boot-{self.boot}", interval=SETTINGS.index_interval_bytes)
        assert verified(self.directory, outside).violations == []

    def reopen(self, expected: LastStop) -> None:
        self.logs = self.open()
        assert self.logs.last_stop is expected
        assert self.logs.offline == {}
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)

    @rule()
    def is_killed(self) -> None:
        self.disk.kill()
        self.is_left_true()
        self.reopen(LastStop.KILLED)

    @precondition(lambda self: self.log.has_files)
    @rule(size=st.integers(1, 200), garbage=st.booleans())
    def is_killed_in_mid_write(self, size: int, *, garbage: bool) -> None:
        self.disk.kill()
        place = self.directory.directory("t-0")
        torn = bytes(range(256))[:size] if garbage else self.next_batch()[:size]
        place.content(max(name for name in place.names() if name.endswith(".log"))).extend(torn)
        self.is_left_true()
        self.reopen(LastStop.KILLED)

    @rule()
    def is_stopped(self) -> None:
        self.logs.close_clean({self.log.name.key: self.model.end})
        self.disk.kill()
        self.is_left_true()
        self.reopen(LastStop.CLEAN)
        assert self.logs.recovered == [] or self.log.missing_from is not None  # it looks each time

    @rule(seed=st.integers(0, 1 << 30), stopped=st.booleans(), partly=st.booleans())
    def loses_power(self, seed: int, *, stopped: bool, partly: bool) -> None:
        if stopped:
            self.logs.close_clean({})
        self.disk.lose_power(Random(seed) if partly else None)
        self.boot += 1
        self.is_left_true()
        self.reopen(LastStop.POWER_LOSS)
        assert self.model.flushed <= self.log.end, "what was flushed is gone"
        assert self.log.end <= self.model.end, "what was cut is back"
        self.model.start = min(self.model.start, self.log.start)
        self.model.start = max(self.model.start, self.log.start)
        self.model.cut(self.log.end)
        # The batches before the start are gone, and a snapshot that was not synced with them.
        self.producers_known = self.producers_known and self.log.start == 0

    @rule(seed=st.integers(0, 1 << 30))
    def loses_its_small_files(self, seed: int) -> None:
        """Indexes, epochs and checkpoints can all be made again from the batches."""
        self.disk.kill()
        rng = Random(seed)
        place = self.directory.directory("t-0")
        for name in place.names():
            if name.endswith(("index", "-checkpoint")) and rng.random() < 0.5:
                content = place.content(name)
                content[:] = rng.choice(
                    [b"", bytes(len(content)), rng.randbytes(24), rng.randbytes(len(content))]
                )
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            if self.directory.exists(name) and rng.random() < 0.3:
                self.directory.content(name)[:] = rng.randbytes(20)
        self.reopen(LastStop.KILLED)

    # -- work

    def next_batch(self) -> bytes:
        """What would be appended next, in its place."""
        content = bytearray(batch(3, size=40))
        content[:8] = self.model.end.to_bytes(8, "big")
        return bytes(content)

    @rule(
        count=st.integers(1, 9),
        size=st.sampled_from([0, 40, 400]),
        jump_ms=st.integers(-20_000, 30_000),
    )
    def appends(self, count: int, size: int, jump_ms: int) -> None:
        self.clock_ms += jump_ms
        self.append(batch(count, size=size, timestamp=self.clock_ms), None, count)

    @rule(gap=st.sampled_from([1, 5, 1000, 1 << 30, 3_000_000_000]), count=st.integers(1, 3))
    def receives_a_gap(self, gap: int, count: int) -> None:
        """As a follower of a leader that has compacted its log."""
        view = batch(count, size=40, timestamp=self.clock_ms)
        place_batch(view, 0, base_offset=self.model.end + gap, leader_epoch=self.leader_epoch)
        stamps = [record.timestamp for record in iterate_records(view)]
        done = self.log.append_as_follower(NOW, self.clock_ms + 60_000, view)
        kept = Kept(self.model.end + gap, bytes(view), self.leader_epoch, None, stamps)
        assert done.last_offset == kept.end - 1
        self.model.batches.append(kept)
        self.model.end = kept.end

    def append(self, view: memoryview, producer: tuple[int, int, int] | None, count: int) -> None:
        records = [record.timestamp for record in iterate_records(view)]
        done = produce(self.log, view, epoch=self.leader_epoch, now_ms=self.clock_ms + 60_000)
        assert not done.duplicate
        assert (done.first_offset, done.last_offset) == (
            self.model.end,
            self.model.end + count - 1,
        )
        kept = Kept(done.first_offset, bytes(view), self.leader_epoch, producer, records)
        self.model.batches.append(kept)
        self.model.end = kept.end

    @precondition(lambda self: self.producers_known)
    @rule(
        producer=st.sampled_from(PRODUCERS),
        count=st.integers(1, 3),
        step=st.integers(-7, 1),
        new_epoch=st.integers(0, 5).map(lambda draw: draw == 0),
    )
    def appends_idempotently(
        self, producer: int, count: int, step: int, *, new_epoch: bool
    ) -> None:
        """The next sequence, an old one, or one that leaves a gap."""
        last = self.model.last_of(producer)
        known = last[-1] if last else None
        epoch = known.producer[1] if known and known.producer else 0
        sequence = 0
        if new_epoch:
            epoch += 1
        elif known and known.producer:
            sequence = known.producer[2] + known.end - known.first + step
        if step < 0 and -step <= len(last) and not new_epoch:
            repeated = last[step]
            assert repeated.producer
            self.repeats(repeated)
        elif sequence >= 0:
            self.tries((producer, epoch, sequence), count, known, is_next=step == 0 or new_epoch)

    def repeats(self, kept: Kept) -> None:
        again = batch(len(kept.timestamps), producer=kept.producer)
        done = produce(self.log, again, epoch=self.leader_epoch)
        assert done.duplicate
        assert (done.first_offset, done.last_offset) == (kept.first, kept.end - 1)

    def tries(
        self, producer: tuple[int, int, int], count: int, known: Kept | None, *, is_next: bool
    ) -> None:
        view = batch(count, producer=producer, timestamp=self.clock_ms)
        if is_next or known is None:
            self.append(view, producer, count)
            return
        try:
            done = produce(self.log, view, epoch=self.leader_epoch)
        except Rejected as refusal:
            assert refusal.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            assert done.duplicate  # the same numbers as one of the last five
            assert any(
                (kept.first, kept.end - 1) == (done.first_offset, done.last_offset)
                for kept in self.model.last_of(producer[0])
            )

    @rule(seed=st.integers(0, 1 << 30))
    def is_busy(self, seed: int) -> None:
        """Many appends at once: without them a history that is drawn step by step stays short."""
        rng = Random(seed)
        for _ in range(rng.randint(5, 25)):
            kind = rng.random()
            if kind < 0.4:
                self.appends(rng.randint(1, 5), rng.choice([0, 40, 400]), rng.randint(-99, 999))
            elif kind < 0.9 and self.producers_known:
                next_one = self._next_of(rng.choice(PRODUCERS))
                self.tries(next_one, rng.randint(1, 3), None, is_next=True)
            elif kind < 0.95:
                self.leader_epoch += 1
            else:
                rng.choice([self.rolls, self.flushes])()

    def _next_of(self, producer: int) -> tuple[int, int, int]:
        """Id, epoch and sequence of the batch this producer would send now."""
        last = self.model.last_of(producer)
        known = last[-1].producer if last else None
        if not known:
            return (producer, 0, 0)
        return (producer, known[1], known[2] + len(last[-1].timestamps))

    @rule()
    def changes_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def rolls(self) -> None:
        self.log.roll(self.clock_ms)

    @rule()
    def flushes(self) -> None:
        flush(self.log)
        if self.log.has_files:
            self.model.flushed = self.model.end

    @rule()
    def checkpoints(self) -> None:
        checkpoint = self.logs.checkpoint({})
        checkpoint.write()
        self.logs.checkpointed(checkpoint)
        # They are kept row by row; they must say what a look at all logs would.
        kept = [log for log in self.logs if log.has_files]
        assert self.in_force(RECOVERY_POINTS) == {one.name.key: one.recovery_point for one in kept}
        for one in kept:  # where it should begin: who misses its head must miss it in the next life
            start = one.start if one.missing_from is None else one.missing_from
            assert self.in_force(LOG_STARTS).get(one.name.key, 0) == start

    def in_force(self, name: str) -> Offsets:
        return decode_offsets(self.disk.directory().read_all(name) or b"", place=name)

    @rule(back=st.integers(0, 12))
    def truncates(self, back: int) -> None:
        target = max(self.model.end - back, 0)
        end = self.log.truncate_to(target)
        if target < self.model.end:
            whole = [kept for kept in self.model.batches if kept.end <= target]
            # Inside a gap it ends before the gap.
            bases = [segment.base for segment in self.log.segments]
            assert end in {target, *bases, *(kept.end for kept in whole[-1:])}
            self.model.batches = whole
            self.model.end = end
            self.model.flushed = min(self.model.flushed, end)
            self.model.start = self.log.start
            assert self.log.start <= end
            self.leader_epoch += 1
            self.producers_known = self.producers_known and self.log.start == 0

    @rule(part=st.floats(0, 1))
    def deletes_records(self, part: float) -> None:
        start = self.model.start + int((self.model.end - self.model.start) * part)
        self.log.advance_start(start)
        self.model.start = max(self.model.start, start)
        # The start is kept by the checkpoint; without it a kill brings deleted records back.
        self.checkpoints()

    @rule()
    def purges(self) -> None:
        self.logs.purge()

    # -- what must be true at any time

    @invariant()
    def ends_where_it_should(self) -> None:
        assert self.log.end == self.model.end
        assert self.log.start <= self.log.end
        assert self.log.recovery_point <= self.log.end

    @invariant()
    def holds_what_was_acknowledged(self) -> None:
        expected = [kept for kept in self.model.batches if kept.end > self.log.start]
        assert read_all(self.log) == [kept.content for kept in expected]

    @invariant()
    def finds_timestamps(self) -> None:
        visible = [
            (timestamp, kept.first + at)
            for kept in self.model.batches
            for at, timestamp in enumerate(kept.timestamps)
            if kept.first + at >= self.log.start
        ]
        if not visible:
            return
        for asked in {visible[-1][0], visible[len(visible) // 2][0] + 1}:
            naive = next((row for row in visible if row[0] >= asked), None)
            found = by_time(self.log, asked, self.log.end)
            assert (found and found[:2]) == naive
        newest = max(visible, key=lambda row: (row[0], -row[1]))
        largest = of_largest_time(self.log, self.log.end)
        assert largest is not None
        assert largest[:2] == newest

    @invariant()
    def knows_who_led_when(self) -> None:
        rows: dict[int, int] = {}
        for kept in self.model.batches:
            rows.setdefault(kept.epoch, kept.first)
        # What went below the start once is not known again, should a power loss set it back.
        self.epochs_from = min(max(self.epochs_from, self.log.start), self.log.end)
        left = [kept.first for kept in self.model.batches if kept.end > self.log.start]
        if left:  # the first epoch reaches back over a gap at the log's start
            self.epochs_from = max(self.epochs_from, left[0])
        above = [(epoch, first) for epoch, first in rows.items() if first > self.epochs_from]
        # Who led at the very end and whose batches a power loss took is still known, also where
        # the leader's next batch came behind a gap.
        found = [
            row
            for row in self.log.epochs.entries()
            if self.epochs_from < row[1] < self.log.end
            and (row[0] in rows or self.model.has(row[1]))
        ]
        assert found == above

    @invariant()
    def knows_what_each_producer_wrote_last(self) -> None:
        if not self.producers_known:
            return
        for producer_id in PRODUCERS:
            self._knows(producer_id)

    def _knows(self, producer_id: int) -> None:
        producer = self.log.producers.get(producer_id)
        batches = producer.batches if producer else ()
        found = [(row.first_sequence, row.last_offset) for row in batches]
        last = self.model.last_of(producer_id)
        assert found == [(kept.producer[2], kept.end - 1) for kept in last if kept.producer]
        if producer and last and last[-1].producer:
            assert producer.epoch == last[-1].producer[1]


def read_all(log: Log) -> list[bytes]:
    """Every batch, by as many reads as a consumer with small ones would need."""
    found: list[bytes] = []
    at = log.start
    while (piece := log.read(at, 3000, log.end, min_one=True)) is not None:
        content = piece.file.read(piece.position, piece.size)
        batches = list(iterate_batches(content))
        assert sum(len(one) for _, one in batches) == piece.size
        found += [bytes(one) for _, one in batches]
        assert at < batches[0][0].next_offset
        at = batches[-1][0].next_offset
    return found


def test_a_log_that_was_cut_down_to_a_gap_is_left_true() -> None:
    """The epoch file reaches back over the gap, and no batch is left. Once a false alarm."""
    state = LogHistory()
    state.receives_a_gap(count=1, gap=3_000_000_000)
    state.is_killed()
    state.truncates(back=1)
    state.is_killed()


def test_a_segment_that_was_cut_off_does_not_come_back_without_its_batches() -> None:
    """Its name was durable, its batches were not: the log would end where it began."""
    state = LogHistory()
    state.receives_a_gap(count=1, gap=3_000_000_000)
    state.truncates(back=2)
    state.loses_power(seed=0, stopped=False, partly=False)


def test_who_led_at_the_end_is_known_also_if_the_next_batch_comes_behind_a_gap() -> None:
    """A power loss took what the second leader wrote, but not always that it led."""
    known = 0
    for drawn in range(30):
        state = LogHistory()
        state.appends(count=1, jump_ms=0, size=0)
        state.flushes()
        state.changes_leader()
        state.appends(count=1, jump_ms=0, size=0)
        state.loses_power(seed=drawn, stopped=False, partly=True)
        state.changes_leader()
        state.receives_a_gap(count=1, gap=3_000_000_000)
        state.knows_who_led_when()
        epochs = [epoch for epoch, _ in state.log.epochs.entries()]
        known += epochs == [0, 1, 2] and len(state.model.batches) == 2
        state.is_killed()
        state.knows_who_led_when()
        state.teardown()
    assert known


LIVES_OF_A_SEED = 10


@pytest.mark.timeout(3_600)
def test_a_log_holds_what_was_acknowledged(histories: Histories) -> None:
    few = settings(max_examples=LIVES_OF_A_SEED, stateful_step_count=40, database=None)

    def live(number: int) -> None:
        drawn = seed(number)(type("Seeded", (LogHistory,), {}))
        run_state_machine_as_test(drawn, settings=few)

    histories.run(live)
