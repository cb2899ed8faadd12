"""Options by time, and asof, in topics whose transactions ended later than their records say."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from harness.processes.cluster import Cluster
from harness.spark.plain import Place
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import WallMs
from tidelog.spark.options import Mode, OptionError
from tidelog.spark.pipelines import asof
from tidelog.spark.stream import Stream

pytestmark = pytest.mark.slow

THEN_MS = 1_700_000_000_000
COMMITTED = {"kafka_isolation_level": "read_committed"}


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


@pytest.fixture(scope="module")
def kafka(shared_kafka: str) -> Place:
    return Place(shared_kafka)


def transact(place: Place, topic: str, rows: Sequence[tuple[int, int]], *, commit: bool) -> None:
    """Rows are partitions and times."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, time in rows:
        producer.produce(topic, b"%d" % time, partition=number, timestamp=time)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def copied(place: Place) -> str:
    """Two hours of records, one each six seconds, in six transactions that ended now."""
    topic = place.topic()
    times = [THEN_MS + n * 6_000 for n in range(1_200)]
    for first in range(0, 1_200, 200):
        transact(place, topic, [(0, time) for time in times[first : first + 200]], commit=True)
    return topic


def an_hour_is_half_of_what_was_copied(place: Place) -> None:
    topic = copied(place)
    hour = str(THEN_MS + 600 * 6_000)
    late = [b"%d" % (THEN_MS + n * 6_000) for n in range(600, 1_200)]
    early = [b"%d" % (THEN_MS + n * 6_000) for n in range(600)]
    for level in (COMMITTED, {}):
        assert place.values(subscribe=topic, startingTimestamp=hour, **level) == late
        assert place.values(subscribe=topic, endingTimestamp=hour, **level) == early
    told = asof.Arguments(bootstrap=place.bootstrap, topic=topic)
    moment = asof.moment(told, f"@{hour}", WallMs(THEN_MS))
    assert moment == {(topic, Partition(0)): 603}, "600 records, and the markers between them"


def test_an_hour_of_a_copy_is_found_by_time(place: Place) -> None:
    an_hour_is_half_of_what_was_copied(place)


def test_an_hour_of_a_copy_is_found_by_time_on_apache_kafka(
    request: pytest.FixtureRequest, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("runs with --nightly")
    an_hour_is_half_of_what_was_copied(request.getfixturevalue("kafka"))


def test_a_time_for_which_only_markers_are_young_enough_is_the_end(place: Place) -> None:
    topic = copied(place)
    young = str(THEN_MS + 1_200 * 6_000)
    read = partial(place.values, subscribe=topic, **COMMITTED)
    assert len(read(endingTimestamp=young)) == 1_200
    with pytest.raises(OptionError, match=r"no record of .* is as young"):
        read(startingTimestamp=young)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(startingTimestamp=young, **latest) == []
    given = {"subscribe": topic, "startingTimestamp": str(THEN_MS + 1_100 * 6_000)}
    stream = Stream(place.source_options(Mode.STREAM, **given), place.client)
    assert stream.initial() == {topic: {"0": 1_105}}


def drawn(place: Place, chance: random.Random) -> tuple[str, list[dict[str, Any]]]:
    """Committed, aborted and plain records of drawn times, and the rows that count."""
    topic = place.topic(partitions=2)
    plain = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 0})
    for _ in range(12):
        base = THEN_MS + chance.randint(0, 50_000)
        rows = [
            (chance.randint(0, 1), base + chance.randint(-5_000, 5_000))
            for _ in range(chance.randint(1, 6))
        ]
        kind = chance.choice(["commit", "abort", "plain"])
        if kind != "plain":
            transact(place, topic, rows, commit=kind == "commit")
            continue
        for number, time in rows:
            plain.produce(topic, b"%d" % time, partition=number, timestamp=time)
        assert plain.flush(30) == 0
    return topic, place.read(subscribe=topic, **COMMITTED)


def first_not_older(rows: Sequence[dict[str, Any]], number: int, time: int) -> int | None:
    """The offset of a partition's first row that is not older."""
    young = (
        row["offset"]
        for row in rows
        if row["partition"] == number and row["timestamp"].timestamp() * 1000 >= time
    )
    return min(young, default=None)


@pytest.mark.parametrize("seed", range(3))
def test_drawn_times_name_what_a_reader_of_all_rows_finds(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    topic, rows = drawn(place, chance)
    for _ in range(10):
        the_same_is_found(place, topic, rows, THEN_MS + chance.randint(-6_000, 56_000))


def the_same_is_found(place: Place, topic: str, rows: list[dict[str, Any]], time: int) -> None:
    first = {number: first_not_older(rows, number, time) for number in range(2)}
    end = {number: 10**9 if at is None else at for number, at in first.items()}
    before = [row for row in rows if row["offset"] < end[row["partition"]]]
    given = {"subscribe": topic, "startingOffsetsByTimestampStrategy": "latest", **COMMITTED}
    assert place.read(endingTimestamp=str(time), **given) == before
    after = [row for row in rows if row not in before]
    assert place.read(startingTimestamp=str(time), **given) == after
    told = asof.Arguments(bootstrap=place.bootstrap, topic=topic)
    moment = asof.moment(told, f"@{time}", WallMs(THEN_MS))
    found = {number: at for (_, number), at in moment.items() if first[number] is not None}
    assert found == {number: at for number, at in first.items() if at is not None}
