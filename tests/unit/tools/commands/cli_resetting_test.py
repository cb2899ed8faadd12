"""Where a group shall go on reading: goals, bounds, times, durations and the file."""

import time
from datetime import UTC, datetime

import pytest

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.resetting import (
    Goal,
    Known,
    ResettingError,
    To,
    clamped,
    duration_ago_ms,
    moment_ms,
    read_csv,
    reset,
    write_csv,
)

ZERO: TopicPartition = ("t", Partition(0))
THERE = Known(start=3, end=9, committed=5, at_time=7)


@pytest.mark.parametrize(
    ("goal", "offset"),
    [
        (Goal(To.EARLIEST), 3),
        (Goal(To.LATEST), 9),
        (Goal(To.CURRENT), 5),
        (Goal(To.OFFSET, 4), 4),
        (Goal(To.OFFSET, 1), 3),
        (Goal(To.OFFSET, 99), 9),
        (Goal(To.TIME), 7),
        (Goal(To.SHIFT, 2), 7),
        (Goal(To.SHIFT, -9), 3),
        (Goal(To.FILE, offsets={ZERO: 6}), 6),
    ],
)
def test_a_goal_as_an_offset(goal: Goal, offset: int) -> None:
    (row,) = reset(goal, {ZERO: THERE})
    assert (row.partition, row.before, row.offset) == (ZERO, 5, offset)


def test_who_committed_nothing_is_at_the_end_and_cannot_be_shifted() -> None:
    new = Known(start=3, end=9)
    assert reset(Goal(To.CURRENT), {ZERO: new})[0].offset == 9
    assert reset(Goal(To.TIME), {ZERO: new})[0].offset == 9, "nothing is as late"
    with pytest.raises(ResettingError, match="t-0 cannot be shifted"):
        reset(Goal(To.SHIFT, 1), {ZERO: new})


def test_what_was_clamped_is_said() -> None:
    assert clamped(reset(Goal(To.OFFSET, 99), {ZERO: THERE})) == [
        "t-0: 99 lies beyond the end of the log, 9 is taken"
    ]
    assert clamped(reset(Goal(To.OFFSET, 1), {ZERO: THERE})) == [
        "t-0: 1 lies before the start of the log, 3 is taken"
    ]
    assert clamped(reset(Goal(To.OFFSET, 9), {ZERO: THERE})) == []


def test_a_time_without_a_zone_is_local_and_said() -> None:
    assert moment_ms("1970-01-01T00:00:01.5Z") == (1500, "")
    assert moment_ms("1970-01-01T01:00:00+01:00") == (0, "")
    local = datetime(2026, 1, 31, 12).astimezone()
    at_ms, said = moment_ms("2026-01-31T12:00")
    assert at_ms == local.timestamp() * 1000
    assert said == f"2026-01-31T12:00 has no zone: it is taken as local, {local.isoformat()}"
    with pytest.raises(ResettingError, match="is no time"):
        moment_ms("soon")


@pytest.mark.parametrize(
    ("zone", "minutes"), [("Asia/Kolkata", 330), ("America/St_Johns", -210), ("UTC", 0)]
)
def test_local_is_where_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch, zone: str, minutes: int
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        at_ms, said = moment_ms("2026-01-31T12:00")
    finally:
        monkeypatch.undo()
        time.tzset()
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    assert at_ms == (noon - 60 * minutes) * 1000
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    assert said.endswith(f"2026-01-31T12:00:00{sign}{hours:02}:{rest:02}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("P1D", 86_400), ("PT2H30M", 9_000), ("P1DT1S", 86_401), ("PT0.5S", 0.5)],
)
def test_a_duration_is_so_long_ago(text: str, seconds: float) -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert duration_ago_ms(text, now) == round((now.timestamp() - seconds) * 1000)


@pytest.mark.parametrize("text", ["P", "PT", "1h", "P1H", "P99999999999D"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ResettingError):
        duration_ago_ms(text, datetime(2026, 1, 31, tzinfo=UTC))


def test_what_is_exported_can_be_read_again() -> None:
    rows = reset(Goal(To.CURRENT), {ZERO: THERE, ("t", Partition(1)): THERE})
    assert write_csv(rows) == "t,0,5\nt,1,5\n"
    assert read_csv(write_csv(rows)) == {ZERO: 5, ("t", 1): 5}
    assert read_csv("\nt, 0, 5\n\n") == {ZERO: 5}


@pytest.mark.parametrize("line", ["t,0", "t,x,1", "t,0,-1", "t,0,1,2"])
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(ResettingError, match="line 2"):
        read_csv(f"t,0,1\n{line}\n")
