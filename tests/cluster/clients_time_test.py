"""Each client finds the first record of a moment: before, at, between and after those stored."""

from collections.abc import Sequence

import pytest

from harness.clients.aio import AioKafka
from harness.clients.everyone import READERS, WRITERS, reader, writer
from harness.clients.facts import (
    OffsetReader,
    Record,
    Running,
    fresh_topic,
    now_ms,
    stored,
)

pytestmark = pytest.mark.slow

SECOND_MS = 1_000


def _one_batch_each(bootstrap: str, groups: Sequence[Sequence[Record]], codec: str) -> str:
    look = AioKafka(bootstrap)
    topic = fresh_topic()
    look.create_topic(topic)
    look.produce_batches(topic, groups, codec=codec)
    return topic


def _at(base_ms: int, *seconds: int) -> list[Record]:
    return [Record(b"%d" % s, timestamp_ms=base_ms + s * SECOND_MS) for s in seconds]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_moment_leads_to_the_first_record_not_before_it(
    cluster: Running, name: str, codec: str
) -> None:
    client = writer(name, cluster.bootstrap)
    assert isinstance(client, OffsetReader)
    base_ms = now_ms() - 3_600_000
    groups = [_at(base_ms, 0, 1, 2), _at(base_ms, 10, 11, 12), _at(base_ms, 20)]
    topic = _one_batch_each(cluster.bootstrap, groups, codec)

    def found(seconds: float) -> int | None:
        return client.offset_for_time(topic, 0, base_ms + int(seconds * SECOND_MS))

    assert found(-100) == 0
    assert found(0) == 0
    assert found(0.001) == 1
    assert found(2) == 2
    assert found(5) == 3
    assert found(11) == 4
    assert found(11.5) == 5
    assert found(20) == 6
    assert found(20.001) is None


@pytest.mark.parametrize("name", READERS)
def test_reading_goes_on_from_the_record_a_moment_leads_to(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    base_ms = now_ms() - 3_600_000
    records = _at(base_ms, *range(0, 60, 2))
    topic = _one_batch_each(cluster.bootstrap, [records[:20], records[20:]], "gzip")

    start = client.offset_for_time(topic, 0, base_ms + 33 * SECOND_MS)

    assert start == 17
    assert client.read(topic, 0, start=start, count=13) == stored(records[17:], start=17)


@pytest.mark.parametrize("name", READERS)
def test_with_times_in_disorder_the_first_record_in_the_log_counts(
    cluster: Running, name: str
) -> None:
    client = reader(name, cluster.bootstrap)
    base_ms = now_ms() - 3_600_000
    topic = _one_batch_each(
        cluster.bootstrap, [_at(base_ms, 0, 5, 2, 3), _at(base_ms, 1, 9, 4)], "snappy"
    )

    found = [client.offset_for_time(topic, 0, base_ms + s * SECOND_MS) for s in (1, 4, 6, 10)]

    assert found == [1, 1, 5, None]


@pytest.mark.parametrize("name", READERS)
def test_an_empty_partition_has_no_record_of_any_moment(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    topic = _one_batch_each(cluster.bootstrap, [], "none")

    assert client.offset_for_time(topic, 0, 0) is None
    assert client.span(topic, 0) == (0, 0)
