"""Requests and answers of so many elements that they are decoded and encoded in a thread."""

from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.brokers import FakeClient, turns
from harness.machines.group_bench import GroupBench
from tidelog.kernel import limits
from tidelog.kernel.steps import Steps
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k18_api_versions,
)
from tidelog.wire.records import Record, build_batch

MANY = limits.ELEMENTS_AT_ONCE_MAX + 1


class Bench(GroupBench):
    """Remembers how many pieces of work went to the threads, besides turns on the loop."""

    threads = 0

    def _aside(self, work: Steps[Any], done: Any) -> None:
        assert isinstance(work, GeneratorType)
        if work.__name__ == "faults_caught":
            self.threads += 1
        super()._aside(work, done)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "log0")
    bench.topic("t", 3)
    bench.aside = []
    return bench


def keys(count: int = MANY) -> k10_find_coordinator.FindCoordinatorRequest:
    names = [str(number) for number in range(count)]
    return k10_find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names)


def test_a_request_and_an_answer_of_many_elements_do_not_hold_the_loop(bench: Bench) -> None:
    asked = bench.start_asking(k10_find_coordinator.API, 4, keys())
    assert bench.threads == 1, "it was decoded on the loop"
    turns(bench)
    assert bench.threads == 2, "its answer was encoded on the loop"
    told = asked.answer().coordinators
    assert [row.key for row in told] == [str(number) for number in range(MANY)]


def test_one_of_fewer_elements_is_read_and_answered_at_once(bench: Bench) -> None:
    asked = bench.start_asking(k10_find_coordinator.API, 4, keys(100))
    assert asked.answer() is not None
    assert not bench.threads


def test_numbers_are_elements_of_a_request(bench: Bench) -> None:
    wanted = k09_offset_fetch.OffsetFetchRequestTopics(
        name="t", partition_indexes=list(range(MANY))
    )
    group = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    request = k09_offset_fetch.OffsetFetchRequest(groups=[group])
    asked = bench.start_asking(k09_offset_fetch.API, 8, request)
    assert bench.threads == 1
    turns(bench)
    assert len(asked.answer().groups[0].topics[0].partitions) == MANY


def test_a_request_of_more_elements_than_any_may_have_ends_its_connection(bench: Bench) -> None:
    asked = bench.start_asking(k10_find_coordinator.API, 4, keys(limits.REQUEST_ELEMENTS_MAX + 1))
    turns(bench)
    assert asked.client.closed is not None
    assert "too many elements" in asked.client.closed
    assert bench.faults == []
    assert bench.broker.received.kept == 0


def test_garbage_behind_many_elements_ends_its_connection(bench: Bench) -> None:
    client = FakeClient()
    frame = request_bytes(k10_find_coordinator.API, 4, keys())[4:-1]
    bench.dispatcher.begin(client, memoryview(frame), bench.now)
    turns(bench)
    assert client.closed is not None
    assert bench.faults == []
    assert bench.broker.received.kept == 0


def test_nothing_behind_it_begins_before_it_is_decoded(bench: Bench) -> None:
    request = k08_offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            k08_offset_commit.OffsetCommitRequestTopic(name=str(number), partitions=[])
            for number in range(MANY)
        ],
    )
    asked = bench.start_asking(k08_offset_commit.API, 8, request)
    key = k08_offset_commit.API.key
    assert not asked.client.session.may_begin(barrier=False, key=key)
    turns(bench)
    assert asked.client.session.may_begin(barrier=False, key=key)
    assert len(asked.answer().topics) == MANY


def test_an_answer_that_is_encoded_in_a_thread_leaves_before_the_next_one(bench: Bench) -> None:
    client = FakeClient()
    batch = build_batch([Record(0, 1_000, b"", b"")])
    wide = produce_request("t", batch)
    wide.topic_data = [
        k00_produce.TopicProduceData(name=str(number), partition_data=[]) for number in range(MANY)
    ] + wide.topic_data
    bench.begin(client, k00_produce.API, 9, wide)
    while not client.session.may_begin(barrier=False):
        bench.aside.pop(0)()  # type: ignore[union-attr]  # a list in this file
    bench.begin(client, k00_produce.API, 9, produce_request("t", batch))
    turns(bench)
    first, second = (
        decode_response(k00_produce.API, 9, memoryview(frame))[1] for frame in client.frames()
    )
    assert len(first.responses) == MANY + 1
    assert first.responses[-1].partition_responses[0].base_offset == 0
    assert second.responses[0].partition_responses[0].base_offset == 1


def test_its_bytes_count_until_it_is_answered(bench: Bench) -> None:
    received = bench.broker.received
    asked = bench.start_asking(k10_find_coordinator.API, 4, keys())
    assert received.kept > MANY * limits.ELEMENT_BYTES // 2
    turns(bench)
    assert asked.answer() is not None
    assert received.kept == 0
    assert asked.client.session.on_end == []


def test_once_it_is_read_it_counts_as_what_it_takes(bench: Bench) -> None:
    """Many numbers take a fifth of what as many elements may take: others can send meanwhile."""
    received = bench.broker.received
    wanted = k09_offset_fetch.OffsetFetchRequestTopics(
        name="t", partition_indexes=list(range(MANY))
    )
    group = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    request = k09_offset_fetch.OffsetFetchRequest(groups=[group])
    asked = bench.start_asking(k09_offset_fetch.API, 8, request)
    assert received.kept > MANY * limits.ELEMENT_BYTES
    bench.aside.pop(0)()  # type: ignore[union-attr]  # a list in this file
    assert MANY * 4 < received.kept < MANY * limits.ELEMENT_BYTES // 3
    turns(bench)
    assert asked.answer() is not None
    assert received.kept == 0


@pytest.mark.parametrize("steps", range(6))
def test_its_bytes_count_no_longer_once_its_client_has_left(bench: Bench, steps: int) -> None:
    asked = bench.start_asking(k10_find_coordinator.API, 4, keys())
    for _ in range(steps):
        bench.aside.pop(0)()  # type: ignore[union-attr]  # as above
    asked.client.session.abandon()
    turns(bench)
    assert bench.broker.received.kept == 0


def test_a_wide_produce_is_appended_although_its_client_has_left(bench: Bench) -> None:
    client = FakeClient()
    request = produce_request("t", build_batch([Record(0, 1_000, b"", b"")]))
    request.topic_data += [
        k00_produce.TopicProduceData(name=str(number), partition_data=[]) for number in range(MANY)
    ]
    bench.begin(client, k00_produce.API, 9, request)
    client.session.abandon()
    turns(bench)
    assert bench.broker.received.kept == 0
    row = produce_request("t", build_batch([Record(0, 1_000, b"", b"")]))
    told = bench.ask(k00_produce.API, 9, row)
    assert told.responses[0].partition_responses[0].base_offset == 1


def test_a_fetch_of_many_partitions_is_answered_before_the_next_request(bench: Bench) -> None:
    bench.topic("wide", MANY)
    rows = [
        k01_fetch.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1)
        for at in range(MANY)
    ]
    request = k01_fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[k01_fetch.FetchTopic(topic="wide", partitions=rows)],
    )
    client = FakeClient()
    bench.begin(client, k01_fetch.API, 11, request)
    turns(bench)
    (frame,) = client.frames()
    answer = decode_response(k01_fetch.API, 11, memoryview(frame))[1]
    assert len(answer.responses[0].partitions) == MANY
    assert answer.error_code == ErrorCode.NONE
    bench.begin(client, k18_api_versions.API, 0, k18_api_versions.ApiVersionsRequest())
    assert len(client.frames()) == 1


def test_many_unknown_topics_are_told_of(bench: Bench) -> None:
    topics = [k03_metadata.MetadataRequestTopic(name=str(number)) for number in range(MANY)]
    request = k03_metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    asked = bench.start_asking(k03_metadata.API, 9, request)
    turns(bench)
    assert bench.threads == 2
    assert len(asked.answer().topics) == MANY


def test_a_wide_fetch_that_waits_leaves_its_memory_to_the_requests_of_others(bench: Bench) -> None:
    """It may wait for five minutes. A few of them would keep everybody else from sending."""
    bench.topic("wide", MANY)
    rows = [
        k01_fetch.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1)
        for at in range(MANY)
    ]
    topic = k01_fetch.FetchTopic(topic="wide", partitions=rows)
    request = k01_fetch.FetchRequest(
        max_wait_ms=300_000, min_bytes=1, session_epoch=-1, topics=[topic]
    )
    asked = bench.start_asking(k01_fetch.API, 11, request)
    turns(bench)
    assert bench.broker.waiting.count == 1
    assert bench.broker.received.kept == 0
    assert asked.client.session.on_end == []
    batch = build_batch([Record(0, 1_000, b"", b"")])
    bench.begin(FakeClient(), k00_produce.API, 9, produce_request("wide", batch))
    turns(bench)
    assert len(asked.answer().responses[0].partitions) == MANY
