"""Random lives of a compacted log, which dies while it is compacted, and a model that remembers
everything: what each key holds is what the model says.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from harness.disks.mortal_disk import KilledError, MortalDisk, Point, Trap, after_calls
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import (
    aborted_of,
    append,
    append_marker,
    batches_of,
    compact,
)
from harness.logs.transactions import read_committed
from harness.logs.verified import around, verified
from tidelog.node.log.settings import LogSettings
from tidelog.wire.codecs import Codec
from tidelog.wire.records import DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, BatchHeader, Origin, Record

RETENTION_MS = 1_000
SETTINGS = LogSettings(
    segment_bytes=1_500,
    index_interval_bytes=200,
    compact=True,
    delete=False,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
GROUPING = msgspec.structs.replace(SETTINGS, segment_bytes=5_000)
"""Segments are grouped by their old sizes: now several fit into one."""
ROUNDS_MAX = 20
KEYS = [b"k%d" % number for number in range(8)] + [b"long" * 20]
PRODUCERS = (7, 8)


@dataclass
class Model:
    """Everything that was ever written."""

    records: dict[int, Record] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    """The producer of each record inside a transaction."""
    markers: dict[int, bool] = field(default_factory=dict)
    """Offset -> committed."""
    ends: dict[int, list[int]] = field(default_factory=lambda: {who: [] for who in PRODUCERS})
    """Of each producer the offsets of its markers."""
    first_clean_ms: dict[int, int] = field(default_factory=dict)
    """When a tombstone was below a clean point, or had a delete horizon, first."""

    def end_of(self, offset: int) -> int | None:
        """Where the marker of a record's transaction is; None of any other record."""
        producer = self.owner.get(offset)
        if producer is None:
            return None
        ends = self.ends[producer]
        after = bisect_right(ends, offset)
        return ends[after] if after < len(ends) else None

    def is_aborted(self, offset: int) -> bool:
        end = self.end_of(offset)
        return end is not None and not self.markers[end]

    def visible(self) -> list[Record]:
        return [row for offset, row in sorted(self.records.items()) if not self.is_aborted(offset)]


def last_values(records: list[Record]) -> dict[bytes | None, bytes]:
    values: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            values.pop(record.key, None)
        elif record.key is not None:
            values[record.key] = record.value
    return values


class Life:
    """One log, from its first record on."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = NOW_MS
        self.boot = 1
        self.disk = MortalDisk()
        self.model = Model()
        self.open_since: dict[int, int] = {}
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS)
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)

    def run(self) -> None:
        """Every other pass is killed at any step."""
        self.live(self.compact)

    def run_through_all_points(self) -> None:
        """It dies at each point once."""
        left = [*Point]
        self.rng.shuffle(left)
        self.live(lambda: self.compact_dying_at(left), left)

    def live(self, compact: Callable[[], None], left: Sequence[Point] = ()) -> None:
        rounds = self.rng.randint(2, 4)
        for part in range(ROUNDS_MAX):
            if part >= rounds and not left:
                break
            for _ in range(self.rng.randint(5, 25)):
                self.write()
            if self.rng.random() < 0.8:
                self.log.roll(self.now_ms)
            flush(self.log)
            compact()
            self.check()
            self.now_ms += self.rng.choice([1, RETENTION_MS // 2, RETENTION_MS + 1])
        assert not left, "no pass came that far"
        for _ in range(4):
            self.finish()
        self.check_nothing_is_left()

    # -- writing

    def write(self) -> None:
        rng, log = self.rng, self.log
        kind = rng.random()
        producer = rng.choice(PRODUCERS)
        if kind < 0.15 and producer in self.open_since:
            self.end_transaction(producer, commit=rng.random() < 0.5)
            return
        in_transaction = kind < 0.4
        epoch = self.epochs[producer]
        origin = Origin(producer, epoch, 0, TRANSACTIONAL_BIT) if in_transaction else Origin()
        rows = [self.row() for _ in range(rng.choice([1, 1, 2, 5, 12]))]
        if kind > 0.95:
            rows[rng.randrange(len(rows))] = (None, b"no key")
        header = append(log, rows, timestamp=self.now_ms, origin=origin, codec=self.codec())
        for at, (key, value) in enumerate(rows):
            offset = header.base_offset + at
            self.model.records[offset] = Record(offset, self.now_ms + at, key, value)
            if in_transaction:
                self.model.owner[offset] = producer
        if in_transaction:
            self.open_since.setdefault(producer, header.base_offset)
        self.now_ms += rng.choice([0, 0, 10])

    def codec(self) -> Codec:
        return self.rng.choice([Codec.NONE] * 4 + [Codec.LZ4, Codec.GZIP])

    def row(self) -> tuple[bytes | None, bytes | None]:
        rng = self.rng
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice([5, 5, 5, 40, 200]))
        return rng.choice(KEYS), value

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        del self.open_since[producer]
        self.epochs[producer] += self.rng.random() < 0.4
        header = append_marker(
            self.log,
            producer,
            commit=commit,
            timestamp=self.now_ms,
            epoch=self.epochs[producer],
        )
        self.model.markers[header.base_offset] = commit
        self.model.ends[producer].append(header.base_offset)

    # -- compaction

    def compact(self) -> None:
        """One pass; now and then it is killed, or the power goes, and what is left starts again."""
        trap = self.rng.choice([None, after_calls(self.rng.randint(0, 60))])
        if not self.clean_until(trap):
            self.die(power=self.rng.random() < 0.5)

    def compact_dying_at(self, left: list[Point]) -> None:
        """As many passes as it takes to be killed once at each of these points, and one to the end.

        Points that no pass comes to now are left in the list.
        """
        for point in [*left]:
            if not self.clean_until(point.trap(self.rng)):
                left.remove(point)
                self.die(power=False)
                self.check()
        self.clean_until(None)

    def clean_until(self, trap: Trap | None) -> bool:
        """One pass; False where it was killed."""
        self.disk.trap = trap
        try:
            self.clean()
            self.log.purge(self.now_ms)
        except KilledError:
            return False
        finally:
            self.disk.trap = None
        return True

    def clean(self) -> None:
        map_bytes_max = self.rng.choice([1, 1_000, 1 << 20])
        self.log.settings = self.rng.choice([SETTINGS, GROUPING])
        compact(
            self.logs,
            self.log,
            self.now_ms,
            high_watermark=self.stable(),
            map_bytes_max=map_bytes_max,
        )
        self.log.settings = SETTINGS

    def stable(self) -> int:
        return min([self.log.end, *self.open_since.values()])

    def die(self, *, power: bool) -> None:
        end = self.log.end
        if power:
            self.disk.lose_power(self.rng)
            self.boot += 1
        else:
            self.disk.kill()
        outside = around(boot_id=f"boot-{self.boot}")
        assert verified(self.disk.directory(), outside).violations == []
        self.reopen()
        assert self.log.end == end

    def reopen(self) -> None:
        self.logs = open_logs(
            self.disk.directory(), settings=LogSettings(), boot_id=f"boot-{self.boot}"
        )
        found = self.logs.log("t", 0)
        assert found is not None
        found.settings = SETTINGS
        self.log = found
        left = self.disk.directory().directory("t-0").names()
        assert not [name for name in left if name.endswith((".swap", ".cleaned", ".deleted"))]

    def finish(self) -> None:
        for producer in list(self.open_since):
            self.end_transaction(producer, commit=True)
        append(self.log, [(b"end", bytes(1_600))], timestamp=self.now_ms)
        self.model.records[self.log.end - 1] = Record(
            self.log.end - 1, self.now_ms, b"end", bytes(1_600)
        )
        self.log.roll(self.now_ms)
        flush(self.log)
        compact(self.logs, self.log, self.now_ms)
        self.check()
        self.now_ms += RETENTION_MS + 1

    # -- what must be true

    def check(self) -> None:
        found = batches_of(self.log)
        offsets = [header.base_offset for header, _ in found]
        assert offsets == sorted(set(offsets))
        rows = [row for header, rows in found if not header.is_control for row in rows]
        for row in rows:
            assert row == self.model.records[row.offset], "a record was changed"
        assert [row.offset for row in rows] == sorted({row.offset for row in rows})
        visible = [row for row in rows if not self.model.is_aborted(row.offset)]
        assert last_values(visible) == last_values(self.model.visible())
        self.check_clean_part(visible, stamped_of(found))
        self.check_markers(rows, {header.base_offset for header, _ in found if header.is_control})
        check_stamps(found)
        self.check_index(rows)
        self.check_reader(visible)
        for producer in self.open_since:
            known = self.log.producers.get(producer)
            assert known is not None
            assert known.epoch == self.epochs[producer]

    def check_nothing_is_left(self) -> None:
        """Everything ended, and all the time there is has passed."""
        cleaned = self.logs.cleaned(self.log.name.key) or 0
        found = batches_of(self.log)
        ended = {self.model.end_of(header.base_offset) for header, _ in found}
        for header, rows in found:
            if header.next_offset >= cleaned:
                continue
            assert not [row for row in rows if row.value is None], "a tombstone stays for ever"
            assert not [row for row in rows if self.model.is_aborted(row.offset)]
            if header.is_control and rows:
                assert header.base_offset in ended, "a marker outlives its data for ever"

    def check_index(self, rows: list[Record]) -> None:
        """A reader of committed records finds out what was aborted."""
        aborted = [row.offset for row in rows if self.model.is_aborted(row.offset)]
        if not aborted:
            return
        index = aborted_of(self.log)
        for offset in aborted:
            producer = self.model.owner[offset]
            assert any(
                entry.producer_id == producer and entry.first_offset <= offset < entry.last_offset
                for entry in index
            ), "the index of aborted transactions is not whole"

    def check_reader(self, visible: list[Record]) -> None:
        """Who reads what is committed sees just that, up to where the first transaction is open."""
        stable = self.log.last_stable_offset(self.log.end)
        assert stable == self.stable()
        answers = read_committed(self.log, self.log.start, stable, 700)
        seen = [record.offset for answer in answers for record in answer.records]
        assert seen == [row.offset for row in visible if row.offset < stable]

    def check_clean_part(self, visible: list[Record], stamped: set[int]) -> None:
        """Below the clean point each key is there once, and young tombstones are."""
        cleaned = self.logs.cleaned(self.log.name.key) or 0
        keys = [row.key for row in visible if row.offset < cleaned]
        assert len(keys) == len(set(keys)), "the clean part holds a key twice"
        there = {row.offset for row in visible}
        for row in self.last_tombstones():
            since = self.model.first_clean_ms.get(row.offset, self.now_ms)
            if self.now_ms < since + RETENTION_MS:
                assert row.offset in there, "a tombstone went too early"
            if row.offset < cleaned or row.offset in stamped:
                self.model.first_clean_ms.setdefault(row.offset, self.now_ms)

    def last_tombstones(self) -> list[Record]:
        last = {row.key: row for row in self.model.visible()}
        return [row for row in last.values() if row.value is None and row.key is not None]

    def check_markers(self, rows: list[Record], markers: set[int]) -> None:
        """A transaction whose data is there has its marker."""
        for row in rows:
            end = self.model.end_of(row.offset)
            assert end is None or end in markers, "a marker went before its data"


def stamped_of(found: list[tuple[BatchHeader, list[Record]]]) -> set[int]:
    """Offsets in batches with a delete horizon; it may be from a pass that was killed later on."""
    stamped = [rows for header, rows in found if header.attributes & DELETE_HORIZON_BIT]
    return {row.offset for rows in stamped for row in rows}


def check_stamps(found: list[tuple[BatchHeader, list[Record]]]) -> None:
    for header, rows in found:
        if rows:
            assert header.max_timestamp == max(row.timestamp for row in rows)
        if header.attributes & DELETE_HORIZON_BIT:
            assert header.base_timestamp > NOW_MS
