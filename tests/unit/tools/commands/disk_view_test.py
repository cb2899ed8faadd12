"""`tidelog disk`: sums and rows out of facts about segments."""

from typing import Any

from tidelog.tools.disk_view import (
    Broker,
    Flush,
    Replica,
    Segment,
    Sums,
    broker_row,
    first_unstable,
    sums,
    trigger_words,
)

NOW_MS = 10_000
SEALED = Segment("00000000000000000000.log", size=100, cached=40, dirty=0, stable=100)
ACTIVE = Segment("00000000000000000009.log", size=50, cached=50, dirty=30, stable=20)
UNKNOWN = Segment("00000000000000000012.log", size=7, cached=None, dirty=None, stable=None)


def broker(*replicas: Replica, last: Flush | None = None) -> Broker:
    return Broker(2, "running", "os", replicas, last)


def replica(*segments: Segment, oldest: int | None = None, partition: int = 0) -> Replica:
    return Replica(
        "orders",
        partition,
        "/data/log0",
        "commit",
        segments,
        durable_offset=11,
        oldest_at_ms=oldest,
    )


def row_of(one: Broker, *, segments: bool = False) -> Any:
    return broker_row(one, NOW_MS, segments=segments)


def test_unflushed_is_what_the_ledger_does_not_know_as_stable() -> None:
    assert SEALED.unflushed == 0
    assert ACTIVE.unflushed == 30
    assert UNKNOWN.unflushed is None


def test_sums_are_of_all_segments() -> None:
    assert sums((SEALED, ACTIVE)) == Sums(150, 90, 30, 30)
    assert sums(()) == Sums(0, 0, 0, 0)


def test_what_is_unknown_of_one_segment_is_unknown_of_the_whole() -> None:
    assert sums((SEALED, UNKNOWN)) == Sums(107, None, None, None)


def test_the_durable_end_lies_in_the_first_segment_that_is_not_stable() -> None:
    assert first_unstable((SEALED, ACTIVE)) == 1
    assert first_unstable((ACTIVE, SEALED)) == 0, "what comes behind a hole is not reached"
    assert first_unstable((SEALED, SEALED)) == 1, "the last one, where all is stable"
    assert first_unstable(()) is None
    assert first_unstable((UNKNOWN, ACTIVE)) is None
    assert first_unstable((SEALED, UNKNOWN)) is None


def test_a_broker_sums_its_partitions_and_has_the_oldest_of_their_ages() -> None:
    young, old = replica(ACTIVE, oldest=9_000), replica(ACTIVE, oldest=4_000, partition=1)
    row = row_of(broker(young, old, replica(SEALED, partition=2)))
    assert (row["size_bytes"], row["unflushed_bytes"], row["dirty_bytes"]) == (200, 60, 60)
    assert row["oldest_unflushed_ms"] == 6_000
    ages = [one["oldest_unflushed_ms"] for one in row["partitions"]]
    assert ages == [1_000, 6_000, None]


def test_a_timestamp_of_the_future_has_no_age_yet() -> None:
    assert row_of(broker(replica(ACTIVE, oldest=99_000)))["oldest_unflushed_ms"] == 0


def test_segments_are_told_where_asked_for() -> None:
    one = broker(replica(SEALED, ACTIVE))
    assert "segments" not in row_of(one)["partitions"][0]
    (partition,) = row_of(one, segments=True)["partitions"]
    assert [row["file"] for row in partition["segments"]] == [SEALED.file, ACTIVE.file]
    assert [row["unflushed_bytes"] for row in partition["segments"]] == [0, 30]


def test_the_last_flush_is_told_where_one_was() -> None:
    assert row_of(broker())["last_flush"] is None
    flush = row_of(broker(last=Flush(1_500.0, 0.7)))["last_flush"]
    assert flush == {"age_ms": 1_500.0, "took_ms": 0.7}


def test_a_partitions_last_flush_is_the_latest_of_its_segments() -> None:
    old, new = (
        Segment(f"{number:020d}.log", size=1, cached=1, dirty=0, stable=1, last_flush=flush)
        for number, flush in enumerate((Flush(900.0, 5.0), Flush(20.0, 0.4)))
    )
    one = broker(replica(SEALED), replica(old, new, partition=1))
    none, found = row_of(one, segments=True)["partitions"]
    assert none["last_flush"] is None
    assert none["segments"][0]["last_flush"] is None
    assert found["last_flush"] == {"age_ms": 20.0, "took_ms": 0.4}
    assert found["segments"][0]["last_flush"] == {"age_ms": 900.0, "took_ms": 5.0}


def test_of_bytes_and_ratio_the_one_that_holds_is_said() -> None:
    ratio = {"dirty_bytes": 0, "dirty_ratio": 20}
    assert trigger_words(ratio) == ["holds writers up above 20 % of memory (vm.dirty_ratio)"]
    given = {"dirty_bytes": 4096, "dirty_ratio": 0, "dirty_expire_centisecs": 3000}
    assert trigger_words(given) == [
        "holds writers up above 4096 bytes (vm.dirty_bytes)",
        "takes what is older than 30 s (vm.dirty_expire_centisecs)",
    ]
    assert trigger_words({}) == []


def test_a_durable_offset_that_is_only_a_least_one_says_so() -> None:
    (exact,) = row_of(broker(replica(SEALED)))["partitions"]
    assert (exact["durable_offset"], exact["durable_offset_exact"]) == (11, True)
    least = Replica("t", 0, "/data/log0", "os", (UNKNOWN,), durable_offset=3, is_exact=False)
    (row,) = row_of(broker(least))["partitions"]
    assert (row["durable_offset"], row["durable_offset_exact"]) == (3, False)
