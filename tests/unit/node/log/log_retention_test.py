"""What retention deletes, and what it must leave."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs, produce, values_of
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.retention import Sweep, wanted_start
from tidelog.node.log.settings import LogSettings
from tidelog.wire.errors import Rejected
from tidelog.wire.records import read_header

SIZE = len(batch(2, size=100))
DAY_MS = 86_400_000
LATER = NOW_MS + DAY_MS


class Place:
    """A log of four sealed segments of four records each, and an active one of two."""

    def __init__(self, **settings: object) -> None:
        self.disk = MemoryDisk()
        self.disk.now_ms = NOW_MS
        self.settings = LogSettings(
            segment_bytes=2 * SIZE,
            file_delete_delay_ms=1_000,
            **settings,  # type: ignore[arg-type] # by name
        )
        self.logs = open_logs(self.disk.directory(), settings=self.settings)
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)
        for at in range(9):
            produce(self.log, batch(2, size=100, timestamp=NOW_MS + at * 1_000))
        flush(self.log)

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.log.directory.names() if name.endswith(suffix)]


def expire(place: Place, start: int, now_ms: int = LATER) -> None:
    """As the shell does it: the checkpoint first, then the log, then the files."""
    logs, log = place.logs, place.log
    logs.plan_starts({log.name.key: start})
    keep(logs)
    logs.plan_starts({})
    log.advance_start(start)
    log.put_aside(log.start, now_ms)


def keep(logs: LogDirectory) -> None:
    made = logs.checkpoint({})
    made.write()
    logs.checkpointed(made)
    logs.sync()


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    log = Place(retention_ms=DAY_MS).log
    # The first segment's newest record was written at +1001, the second one's at +3001.
    assert wanted_start(log, log.end, LATER + 1_001) == 0
    assert wanted_start(log, log.end, LATER + 1_002) == 4
    assert wanted_start(log, log.end, LATER + 3_002) == 8


def test_the_active_segment_is_rolled_when_all_of_it_is_too_old() -> None:
    log = Place(retention_ms=DAY_MS).log
    assert wanted_start(log, log.end, LATER + 10_000) == 18
    assert [segment.base for segment in log.segments] == [0, 4, 8, 12, 16, 18]
    log.advance_start(18)
    assert values_of(log) == []
    assert produce(log, batch(1)).first_offset == 18
    # An empty active segment is left in peace.
    assert wanted_start(log, log.end, LATER + 10_000) in {18, 19}


def test_an_empty_log_is_left_alone() -> None:
    place = Place(retention_ms=1)
    place.log.roll(NOW_MS)
    place.log.advance_start(18)
    assert wanted_start(place.log, 18, LATER) == 18
    assert len(place.log.segments) == 1


def test_nothing_goes_without_a_limit_or_without_the_policy() -> None:
    log = Place(retention_ms=-1, retention_bytes=-1).log
    assert wanted_start(log, log.end, LATER + 10 * DAY_MS) == 0
    log = Place(retention_ms=1, retention_bytes=1, delete=False).log
    assert wanted_start(log, log.end, LATER + 10 * DAY_MS) == 0


def test_a_timestamp_in_the_future_keeps_its_segment_and_those_behind_it() -> None:
    place = Place(retention_ms=DAY_MS)
    log = Log(place.disk.directory().directory("u-0"), place.log.name, place.settings, place.logs)
    for ahead in (0, 0, 30 * DAY_MS, 0, 0, 0):
        produce(log, batch(2, size=100, timestamp=NOW_MS + ahead), now_ms=NOW_MS + ahead)
    assert wanted_start(log, log.end, NOW_MS + 2 * DAY_MS) == 4


def test_records_without_a_time_are_as_old_as_their_file() -> None:
    place = Place(retention_ms=DAY_MS)
    log = place.logs.create("u", 0, TOPIC_ID, place.settings)
    for _ in range(3):
        view = batch(2, size=100, timestamp=-1)
        view[35:43] = (-1).to_bytes(8, "big", signed=True)
        log.append_as_leader(NOW, NOW_MS, view, read_header(view), 0)
    assert log.segments[0].largest_timestamp() == -1
    assert wanted_start(log, log.end, LATER) == 0
    assert wanted_start(log, log.end, LATER + 1) == 6


@pytest.mark.parametrize(
    ("size", "start"), [(9, 0), (8, 0), (7, 4), (6, 4), (5, 8), (2, 12), (1, 16), (0, 18)]
)
def test_the_oldest_segments_go_while_the_rest_is_large_enough(size: int, start: int) -> None:
    log = Place(retention_bytes=size * SIZE).log
    assert wanted_start(log, log.end, NOW_MS) == start


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    log = Place(retention_ms=1, retention_bytes=0).log
    for water in range(19):
        assert wanted_start(log, water, LATER) == (18 if water == 18 else water // 4 * 4)


def test_a_log_start_inside_a_segment_is_kept() -> None:
    log = Place(retention_bytes=7 * SIZE).log
    log.advance_start(6)
    assert wanted_start(log, log.end, NOW_MS) == 6


def test_a_reader_at_a_deleted_segment_gets_its_bytes() -> None:
    place = Place()
    piece = place.log.read(0, 1 << 20, 18, min_one=True)
    assert piece is not None
    expected = bytes(piece.file.read(piece.position, piece.size))
    expire(place, 8)
    assert len(place.names(".log.deleted")) == 2
    assert bytes(piece.file.read(piece.position, piece.size)) == expected
    with pytest.raises(Rejected):
        place.log.read(0, 1 << 20, 18, min_one=True)


def test_files_go_after_their_delay() -> None:
    place = Place()
    expire(place, 8)
    place.log.purge(LATER + 999)
    assert len(place.names(".deleted")) == 6
    place.log.purge(LATER + 1_000)
    assert place.names(".deleted") == []
    assert place.names(".log") == [f"{base:020d}.log" for base in (8, 12, 16)]


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("power", [False, True])
def test_the_start_never_goes_back_whenever_the_broker_dies(step: int, *, power: bool) -> None:
    place = Place()
    logs, log, seen = place.logs, place.log, 0
    if step > 0:
        logs.plan_starts({log.name.key: 8})
        keep(logs)
    if step > 1:
        log.advance_start(8)
        seen = log.start
    if step > 2:
        log.put_aside(log.start, LATER)
    if step > 3:
        log.purge()
    if power:
        place.disk.lose_power()
    else:
        place.disk.kill()
    again = open_logs(
        place.disk.directory(), settings=place.settings, boot_id="boot-2" if power else "boot-1"
    ).log("t", 0)
    assert again is not None
    assert seen <= again.start <= 8
    if not power:
        assert values_of(again) == list(range(again.start, 18))


def test_producers_nobody_heard_of_for_long_are_forgotten() -> None:
    place = Place(producer_expiration_ms=1_000)
    produce(place.log, batch(1, producer=(7, 0, 0)), now_ms=NOW_MS)
    place.log.expire_producers(NOW_MS + 1_000)
    assert place.log.producers.get(7) is not None
    place.log.expire_producers(NOW_MS + 1_001)
    assert place.log.producers.get(7) is None


def test_a_sweep_tells_the_new_starts_of_many_logs_in_small_steps() -> None:
    place = Place(retention_bytes=0)
    others = [place.logs.create("u", at, TOPIC_ID, place.settings) for at in range(120)]
    sweep = Sweep([(log, 0) for log in others] + [(place.log, 18)])
    found: dict[Log, int] = {}
    steps = 0
    while not sweep.done:
        found |= sweep.step(NOW_MS, lambda log, reason: pytest.fail(f"{log}: {reason}"))
        steps += 1
    assert found == {place.log: 18}
    assert steps == 3


def test_a_closed_log_is_opened_only_where_something_may_go() -> None:
    place = Place(retention_ms=DAY_MS)
    place.logs.create("u", 0, TOPIC_ID, place.settings)
    other = place.logs.log("u", 0)
    assert other is not None
    produce(other, batch(1))
    place.logs.close_clean({})
    again = open_logs(place.disk.directory(), settings=place.settings).log("u", 0)
    assert again is not None
    assert wanted_start(again, again.end, NOW_MS + 1) == 0
    assert again.closed is not None
    assert wanted_start(again, again.end, LATER + 1) == 1
    assert again.closed is None
