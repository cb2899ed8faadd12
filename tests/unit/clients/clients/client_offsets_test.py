"""The language of offsets: what each word means, and where that is in a partition."""

import pytest

from harness.machines.toy_topics import Log, ToyTopics
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.offsets import (
    Anchor,
    Place,
    Point,
    duration_ms,
    parse_range,
    plan_offsets,
)
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import WallMs

NOW = WallMs(1_800_000_000_000)
HOUR = 3_600_000
ZERO: TopicPartition = ("t", Partition(0))
START_POINT, END_POINT = Point(Anchor.START), Point(Anchor.END)


def at(timestamp: int) -> Point:
    return Point(Anchor.TIME, timestamp)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("start", START_POINT),
        ("end", END_POINT),
        ("0", Point(Anchor.ZERO, 0)),
        ("123", Point(Anchor.ZERO, 123)),
        ("-10", Point(Anchor.END, -10)),
        ("@now", at(NOW)),
        ("@-1h", at(NOW - HOUR)),
        ("@-1h30m", at(NOW - HOUR * 3 // 2)),
        ("@-99999w", at(0)),
        ("@1700000000123", at(1_700_000_000_123)),
        ("@2023-11-14", at(1_699_920_000_000)),
        ("@2023-11-14T22:13", at(1_699_999_980_000)),
        ("@2023-11-14T22:13:20", at(1_700_000_000_000)),
        ("@2023-11-14T22:13:20.5Z", at(1_700_000_000_500)),
        ("@2023-11-15T00:13:20+02:00", at(1_700_000_000_000)),
        ("@1969-12-31", at(0)),
    ],
)
def test_one_point_is_a_range_without_an_end(text: str, point: Point) -> None:
    span = parse_range(text, NOW)
    assert (span.first, span.stop) == (point, None)


@pytest.mark.parametrize(
    ("text", "first", "stop"),
    [
        ("start:end", START_POINT, END_POINT),
        ("5:10", Point(Anchor.ZERO, 5), Point(Anchor.ZERO, 10)),
        ("-10:end", Point(Anchor.END, -10), END_POINT),
        ("@-30m:@now", at(NOW - HOUR // 2), at(NOW)),
        ("@2023-11-14T22:13:20:@now", at(1_700_000_000_000), at(NOW)),
        (
            "@2023-11-14T22:13:@2023-11-14T22:13:20",
            at(1_699_999_980_000),
            at(1_700_000_000_000),
        ),
    ],
)
def test_two_points_are_a_range(text: str, first: Point, stop: Point) -> None:
    span = parse_range(text, NOW)
    assert (span.first, span.stop) == (first, stop)


NONSENSE = ("", ":", "begin", "1.5", "+1", "--1", "1:", ":1", "1:2:3", "end:start:end", "٣")
NO_TIMES = ("@", "@-", "@-1", "@-1x", "@soon", "@17000000001234")
NO_NUMBERS = ("99999999999999999999", "9223372036854775808")


@pytest.mark.parametrize("text", [*NONSENSE, *NO_TIMES, *NO_NUMBERS])
def test_anything_else_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="must be start, end, 123"):
        parse_range(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("500ms", 500),
        ("2s", 2_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("1h x", None),
    ],
)
def test_lengths_of_time(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "first", "stop"),
    [
        ("start", 10, None),
        ("end", 30, None),
        ("12", 12, None),
        ("-5", 25, None),
        ("-500", 10, None),
        ("start:end", 10, 30),
        ("-5:-2", 25, 28),
        ("@-30m:@now", 15, 30),
        ("@-45m:@-30m", 10, 15),
    ],
)
def test_a_range_has_its_place_in_a_log(text: str, first: int, stop: int | None) -> None:
    # Record n was written n seconds after 1970, and it is 15 seconds past the first half hour.
    span = parse_range(text, WallMs(HOUR // 2 + 15_000))
    client = ToyTopics({"t": [Log(10, 30)]}).client()
    client.run(refresh(client.view, None))
    places = client.run(plan_offsets(client.view, [ZERO], span))
    assert places == {ZERO: Place(Offset(first), None if stop is None else Offset(stop))}
