"""ListOffsets that takes long: in parts, with other clients' requests in between."""

import struct
from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.machines.brokers import START_MS, FakeClient, HandlerBench, turns
from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k02_list_offsets
from tidelog.wire.records import Record, build_batch, seal

VERSION = 7
LATE_MS = START_MS + 1_000


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path)
    bench.topic("t")
    produce_lying(bench, "t", limits.RECORDS_AT_ONCE_MAX + 1)
    bench.aside = []
    return bench


def produce_lying(bench: HandlerBench, topic: str, count: int) -> None:
    """A batch whose header tells of a later time than any of its records has."""
    batch = build_batch([Record(at, START_MS, None, b"") for at in range(count)])
    struct.pack_into(">q", batch, 35, LATE_MS)
    seal(batch)
    bench.ask(k00_produce.API, 9, produce_request(topic, batch))


def begin(bench: HandlerBench, *timestamps: int, times: int = 1, topic: str = "t") -> FakeClient:
    asked = [
        k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=one)
        for one in timestamps
    ]
    topics = [
        k02_list_offsets.ListOffsetsTopic(name=topic, partitions=[one])
        for one in asked
        for _ in range(times)
    ]
    client = FakeClient()
    request = k02_list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    bench.begin(client, k02_list_offsets.API, VERSION, request)
    return client


def rows_of(client: FakeClient) -> list[Any]:
    (frame,) = client.frames()
    answer = decode_response(k02_list_offsets.API, VERSION, memoryview(frame))[1]
    return [row for topic in answer.topics for row in topic.partitions]


def test_many_records_are_not_looked_at_on_the_loop(bench: HandlerBench) -> None:
    client = begin(bench, LATE_MS)
    assert client.frames() == []
    assert not client.session.may_begin(barrier=False)
    assert turns(bench) == 1
    (row,) = rows_of(client)
    assert (row.error_code, row.offset) == (ErrorCode.NONE, -1)
    assert client.session.may_begin(barrier=True)


def test_what_one_request_looks_at_on_the_loop_is_little_in_all(bench: HandlerBench) -> None:
    bench.topic("small")
    produce_lying(bench, "small", limits.RECORDS_AT_ONCE_MAX // 2)
    client = begin(bench, LATE_MS, LATE_MS, LATE_MS, topic="small")
    assert client.frames() == []
    assert turns(bench) == 1
    assert [row.offset for row in rows_of(client)] == [-1] * 3


def test_others_have_their_turn_between_many_partitions(bench: HandlerBench) -> None:
    client = begin(bench, -1, times=2 * limits.ROWS_PER_STEP + 1)
    assert client.frames() == []
    assert turns(bench) == 2
    assert len(rows_of(client)) == 2 * limits.ROWS_PER_STEP + 1


def test_a_partition_that_is_led_elsewhere_meanwhile_is_refused(bench: HandlerBench) -> None:
    client = begin(bench, LATE_MS)
    bench.broker.replicas.remove(("t", Partition(0)))
    turns(bench)
    (row,) = rows_of(client)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_more_is_done_for_a_client_that_is_gone(bench: HandlerBench) -> None:
    client = begin(bench, LATE_MS, LATE_MS)
    client.session.abandon()
    assert turns(bench) == 1


@pytest.mark.parametrize("where", ["iterate_plain", "unpacked"])
def test_a_fault_while_records_are_read_in_the_thread_ends_the_request_alone(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    client = begin(bench, LATE_MS)

    def raises(*_: object, **__: object) -> None:
        raise OverflowError("no such time")

    monkeypatch.setattr(f"tidelog.node.log.lookup.{where}", raises)
    turns(bench)
    assert client.closed is not None
    assert client.frames() == []
    assert len(bench.faults) == 1
    assert bench.broker.looked_at_bytes == 0


def test_searches_wait_while_others_have_much_in_memory(bench: HandlerBench) -> None:
    bench.broker.looked_at_bytes = limits.LOOKED_AT_BYTES_MAX
    first, second = begin(bench, LATE_MS), begin(bench, LATE_MS)
    assert bench.aside is not None
    assert len(bench.aside) == 2
    in_memory = bench.broker.looked_at_bytes
    bench.aside.pop()()
    assert (second.frames(), bench.broker.looked_at_bytes) == ([], in_memory)
    turns(bench)
    assert [row.offset for row in rows_of(first) + rows_of(second)] == [-1, -1]
    assert bench.broker.looked_at_bytes == limits.LOOKED_AT_BYTES_MAX


def test_the_memory_of_a_search_is_free_when_its_client_is_gone(bench: HandlerBench) -> None:
    client = begin(bench, LATE_MS)
    assert bench.broker.looked_at_bytes
    client.session.abandon()
    turns(bench)
    assert bench.broker.looked_at_bytes == 0
