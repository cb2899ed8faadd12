"""Load: rows made up, latencies that add up, and what a run of many tasks comes to."""

from collections import Counter

import pytest

from tidelog.clients.producer.partitioner import partition_of_key
from tidelog.spark.pipelines.generating import PRODUCER_SHIFT, Generator, Shape
from tidelog.spark.pipelines.latencies import CLASSES, Latencies
from tidelog.spark.pipelines.loading import Report
from tidelog.spark.pipelines.produce import summary_of


def test_a_value_begins_with_the_number_of_its_row() -> None:
    batches = list(Generator(Shape(size=50), 3, 4).rows(1_000, at_once=300))
    assert [one.batch.num_rows for one in batches] == [300, 300, 300, 100]
    values = [value for one in batches for value in one.batch.column("value").to_pylist()]
    assert [int(value[:16], 16) for value in values] == [
        (3 << PRODUCER_SHIFT) + n for n in range(1_000)
    ]
    assert {len(value) for value in values} == {50}
    assert len({value[16:] for value in values}) > 900, "what follows is drawn"
    assert all(value.isascii() for value in values)


@pytest.mark.parametrize("size", [1, 5, 16, 17, 100_000])
def test_values_have_any_size(size: int) -> None:
    (one,) = Generator(Shape(size=size), 0, 1).rows(3)
    values = one.batch.column("value").to_pylist()
    assert [len(value) for value in values] == [size] * 3
    assert [value[: min(size, 16)][-1:] for value in values] == [b"0", b"1", b"2"]


def test_equal_seeds_make_equal_rows_and_tasks_differ() -> None:
    def made(seed: int, producer: int) -> list[object]:
        rows = Generator(Shape(size=40, keys=9, seed=seed), producer, 2).rows(50)
        return [one.batch.to_pydict() for one in rows]

    assert made(1, 0) == made(1, 0)
    assert made(1, 0) != made(2, 0)
    assert made(1, 0) != made(1, 1)


def test_keys_go_where_every_client_sends_them() -> None:
    (one,) = Generator(Shape(size=20, keys=50), 0, 7).rows(2_000)
    keys, places = (one.batch.column(name).to_pylist() for name in ("key", "partition"))
    assert len(set(keys)) == 50
    assert all(partition_of_key(key, 7) == at for key, at in zip(keys, places, strict=True))


def test_skewed_keys_are_drawn_by_their_rank() -> None:
    (one,) = Generator(Shape(size=20, keys=100, skew=1.0), 0, 1).rows(50_000)
    found = Counter(one.batch.column("key").to_pylist())
    first, tenth = found[b"00000000"], found[b"00000009"]
    assert 7 < first / tenth < 13, "the tenth comes a tenth as often as the first"


def test_latencies_of_tasks_add_up() -> None:
    one, other = Latencies(), Latencies()
    one.add(1_000_000, 90)
    other.add(50_000_000, 9)
    other.add(10**15, 1)
    told = Latencies.together([one, other]).percentiles_ms()
    assert told is not None
    assert 1.0 <= told["p50"] <= 1.05
    assert 50 <= told["p95"] <= 52.5
    assert told["max"] > told["p99"]
    assert one.counts.sum() + other.counts.sum() == 100
    assert len(one.counts) == CLASSES


def test_nothing_measured_is_nothing_told() -> None:
    assert Latencies().percentiles_ms() is None
    assert Latencies.together([]).percentiles_ms() is None


def test_a_run_lasts_from_the_first_task_to_the_last() -> None:
    early = Report(rows=100, size_bytes=5_000_000, began=10.0, ended=12.0)
    late = Report(rows=50, failed=20, error="NOT_LEADER", began=11.0, ended=15.0)
    early.latencies.add(2_000_000, 100)
    told = summary_of([early, late])
    assert (told["rows"], told["acknowledged"], told["failed"]) == (150, 130, 20)
    assert (told["seconds"], told["rows_per_s"], told["mb_per_s"]) == (5.0, 26, 1.0)
    assert told["error"] == "NOT_LEADER"


def test_no_task_is_no_division_by_nothing() -> None:
    assert summary_of([])["rows_per_s"] == 0
