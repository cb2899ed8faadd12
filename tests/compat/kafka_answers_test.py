"""The same requests to a real Apache Kafka broker and to ours: the same answers. `--nightly` only.

Kafka takes half a minute to start on a busy machine.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.clients.fetch_raw import VERSION, fetch_request, offset_at
from harness.clients.produce_raw import VERSION as PRODUCE_VERSION
from harness.clients.produce_raw import produce_request
from harness.clients.raw_socket import RawClient
from harness.kafka.admin_questions import questions
from harness.kafka.admin_questions_of_settings import Question
from harness.kafka.jars import need_kafka
from harness.processes.cluster import Cluster, until
from kafka_cluster import Kafka
from tidelog.wire.messages import k00_produce, k01_fetch, k19_create_topics
from tidelog.wire.records import Record, build_batch, iterate_batches, iterate_records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 120
SAME = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "0",
}
"""What the bench's Kafka is started with, or would take too long otherwise."""

EXPECTED = {
    "settings of a topic": "Kafka's feature of eligible leaders sets its min.insync.replicas",
    "settings of a changed topic": "as above",
    "settings of all brokers": "as above",
}
"""Where answers differ, and why."""


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    if not request.config.getoption("--nightly"):
        pytest.skip("Apache Kafka is started with --nightly only")
    running = Kafka(Path(need_kafka().partition(":")[0]))
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def ours(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: ARG001 -- first, or not at all
    with Cluster(tmp_path_factory.mktemp("answers"), settings=SAME) as cluster:
        yield cluster


def answers(bootstrap: str) -> dict[str, object]:
    with RawClient(bootstrap) as client:
        return {one.title: asked(one, client) for one in questions()}


def asked(question: Question, client: RawClient) -> object:
    try:
        return question.ask(client)
    except (EOFError, OSError) as error:
        raise AssertionError(f"{question.title}: {error!r}") from error


def test_an_administrator_gets_the_same_answers(kafka: Kafka, ours: Cluster) -> None:
    theirs, found = answers(kafka.bootstrap), answers(ours.bootstrap)
    assert found.keys() == theirs.keys()
    differ = [title for title in theirs if found[title] != theirs[title]]
    for title in differ:
        print(title, found[title], theirs[title], sep="\n")  # noqa: T201 -- for who must judge it
    assert set(differ) == EXPECTED.keys()


# -- compaction ---------------------------------------------------------------------------------

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
Kept = list[tuple[int, bytes | None, bytes | None]]


def test_compaction_keeps_the_same_records(kafka: Kafka, ours: Cluster) -> None:
    """The very same batches, tombstones among them, make the very same logs."""
    batches = written()
    for bootstrap in (kafka.bootstrap, ours.bootstrap):
        fill(bootstrap, batches)
    rows = sum(count for count, _ in batches)

    def are_equal() -> bool:
        theirs = kept(kafka.bootstrap)
        return len(theirs) < rows / 2 and theirs == kept(ours.bootstrap)

    until(are_equal, "both have compacted, to the same", PATIENCE_S)
    assert any(value is None for _, _, value in kept(ours.bootstrap)), "tombstones stay for a day"


def written() -> list[tuple[int, bytearray]]:
    rng, now_ms = Random(4), time.time_ns() // 1_000_000  # an old segment would be rolled here only
    batches = []
    for number in range(300):
        rows = [
            Record(
                at,
                now_ms + number,
                b"key-%d" % rng.randrange(500),
                None if rng.random() < 0.1 else rng.randbytes(rng.randrange(400)),
            )
            for at in range(rng.randrange(1, 80))
        ]
        batches.append((len(rows), build_batch(rows)))
    return batches


def fill(bootstrap: str, batches: list[tuple[int, bytearray]]) -> None:
    topic = k19_create_topics.CreatableTopic(
        name="compacted",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[
            k19_create_topics.CreatableTopicConfig(name=name, value=value)
            for name, value in COMPACTED.items()
        ],
    )
    with RawClient(bootstrap) as client:
        request = k19_create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert client.ask(k19_create_topics.API, 7, request).topics[0].error_code == 0
        for _, batch in batches:
            answer = client.ask(
                k00_produce.API, PRODUCE_VERSION, produce_request("compacted", batch, acks=-1)
            )
            assert answer.responses[0].partition_responses[0].error_code == 0


def kept(bootstrap: str) -> Kept:
    rows: Kept = []
    with RawClient(bootstrap) as client:
        offset, end = 0, offset_at(client, "compacted", -1)
        while offset < end:
            answer = client.ask(k01_fetch.API, VERSION, fetch_request("compacted", offset))
            content = memoryview(answer.responses[0].partitions[0].records)
            for header, batch in iterate_batches(content):
                offset = header.next_offset
                rows += [(row.offset, row.key, row.value) for row in iterate_records(batch)]
    return rows
