"""Batches that take long to be made ready: off the loop, and in order all the same."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.machines.brokers import FakeClient, HandlerBench, led_here, turns
from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant
from tidelog.node.log.log import Log
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce
from tidelog.wire.messages.k00_produce import ProduceRequest
from tidelog.wire.metadata_records import ConfigChanged, PartitionChanged, ResourceKind
from tidelog.wire.records import (
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    iterate_records,
    place_batch,
    seal,
)

NOW_MS = 1_700_000_000_000
PLAIN = build_batch([Record(0, NOW_MS, b"key", b"value " * 20, ())])
ZSTD = build_batch([Record(0, NOW_MS, b"key", b"value " * 20, ())], codec=Codec.ZSTD)
MANY_KEYS = build_batch(
    [Record(at, NOW_MS, b"%d" % (at * 7919), b"%d" % (at * 104729), ()) for at in range(2_000)],
    codec=Codec.LZ4,
)
NO_KEY = build_batch(
    [Record(at, NOW_MS, None, b"%d" % (at * 104729), ()) for at in range(2_000)], codec=Codec.LZ4
)


MANY_PLAIN = build_batch([Record(at, NOW_MS, b"key", b"") for at in range(3_000)])
NO_TIMESTAMP = bytearray(MANY_PLAIN)
NO_TIMESTAMP[35:43] = b"\xff" * 8
seal(NO_TIMESTAMP)
FEW_WITHOUT_TIMESTAMP = bytearray(PLAIN)
FEW_WITHOUT_TIMESTAMP[35:43] = b"\xff" * 8
seal(FEW_WITHOUT_TIMESTAMP)
UNPACKS_TO_MUCH = build_batch([Record(0, NOW_MS, b"key", bytes(1_000_000))], codec=Codec.ZSTD)
assert len(UNPACKS_TO_MUCH) < 4_096


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path)
    bench.aside = []
    bench.topic("packed", compression_type="zstd")
    bench.topic("plain")
    bench.topic("compacted", cleanup_policy="compact")
    return bench


def begin(
    bench: HandlerBench,
    topic: str,
    batch: bytearray,
    *,
    acks: int = 1,
    client: FakeClient | None = None,
) -> FakeClient:
    client = client or FakeClient()
    bench.begin(client, k00_produce.API, 9, produce_request(topic, batch, acks=acks))
    return client


def log_of(bench: HandlerBench, topic: str) -> Log:
    replica = bench.broker.replicas.get((topic, Partition(0)))
    assert replica is not None
    return replica.log


def row_of(client: FakeClient) -> Any:
    (frame,) = client.frames()
    answer = decode_response(k00_produce.API, 9, memoryview(frame))[1]
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize(
    ("topic", "batch", "is_long"),
    [
        ("packed", PLAIN, True),
        ("packed", ZSTD, False),
        ("plain", PLAIN, False),
        ("plain", MANY_KEYS, False),
        ("compacted", PLAIN, False),
        ("compacted", ZSTD, False),
        ("compacted", MANY_KEYS, True),
        ("compacted", MANY_PLAIN, True),
        ("compacted", UNPACKS_TO_MUCH, True),
        ("plain", MANY_PLAIN, False),
        ("plain", NO_TIMESTAMP, True),
        ("plain", FEW_WITHOUT_TIMESTAMP, False),
    ],
)
def test_only_what_takes_long_is_done_aside(
    bench: HandlerBench, topic: str, batch: bytearray, *, is_long: bool
) -> None:
    client = begin(bench, topic, bytearray(batch))
    assert bench.aside is not None
    assert len(bench.aside) == is_long
    assert (log_of(bench, topic).end == 0) == is_long
    turns(bench)
    row = row_of(client)
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)


def test_nothing_begins_behind_a_batch_that_is_made_ready(bench: HandlerBench) -> None:
    client = begin(bench, "packed", bytearray(PLAIN))
    assert not client.session.may_begin(barrier=False)
    turns(bench)
    assert client.session.in_flight == 1
    row_of(client)
    assert client.session.may_begin(barrier=True)


def test_a_batch_is_made_ready_behind_one_that_waits_for_replicas(bench: HandlerBench) -> None:
    client = FakeClient()
    client.session.begin(barrier=False)
    begin(bench, "packed", bytearray(PLAIN), client=client)
    assert not client.session.may_begin(barrier=False)
    turns(bench)
    assert client.session.may_begin(barrier=False), "its turn is over though nothing is answered"
    assert client.frames() == []


def test_the_connection_s_buffer_may_be_used_again_meanwhile(bench: HandlerBench) -> None:
    client = begin(bench, "packed", bytearray(PLAIN))
    turns(bench)
    assert row_of(client).error_code == ErrorCode.NONE


def test_also_for_what_the_request_has_besides(bench: HandlerBench) -> None:
    client = FakeClient()
    request = produce_request("packed", bytearray(PLAIN), acks=1)
    request.topic_data += produce_request("plain", bytearray(PLAIN)).topic_data
    bench.begin(client, k00_produce.API, 9, request)
    turns(bench)
    (frame,) = client.frames()
    answer = decode_response(k00_produce.API, 9, memoryview(frame))[1]
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    found = log_of(bench, "packed").read(0, 1_000_000, 1, min_one=True)
    assert found is not None
    content = found.file.read(found.position, found.size)
    assert [record.key for record in iterate_records(content)] == [b"key"]


def test_every_record_without_a_key_is_named(bench: HandlerBench) -> None:
    client = begin(bench, "compacted", bytearray(NO_KEY))
    turns(bench)
    row = row_of(client)
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == list(range(2_000))
    assert log_of(bench, "compacted").end == 0


def test_without_an_answer_a_batch_that_may_not_be_ends_the_connection(bench: HandlerBench) -> None:
    client = begin(bench, "compacted", bytearray(NO_KEY), acks=0)
    turns(bench)
    assert client.closed == "produce with acks=0 to compacted-0: INVALID_RECORD"


def test_who_left_meanwhile_had_it_appended_all_the_same(bench: HandlerBench) -> None:
    client = begin(bench, "packed", bytearray(PLAIN), acks=0)
    client.session.abandon()
    turns(bench)
    assert log_of(bench, "packed").end == 1


def test_a_partition_that_goes_meanwhile_takes_nothing(bench: HandlerBench) -> None:
    client = begin(bench, "packed", bytearray(PLAIN))
    bench.broker.replicas.remove(("packed", Partition(0)))
    turns(bench)
    assert row_of(client).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_it_is_appended_when_it_is_ready_not_when_it_came(bench: HandlerBench) -> None:
    begin(bench, "packed", bytearray(PLAIN))
    bench.now = Instant(bench.now + 5)
    turns(bench)
    assert log_of(bench, "packed").dirty.since == bench.now


def test_small_batches_of_one_request_are_looked_at_aside_when_they_are_many(
    bench: HandlerBench,
) -> None:
    client = FakeClient()
    request = produce_request("compacted", bytearray(ZSTD), acks=1)
    for _ in range(99):
        request.topic_data += produce_request("compacted", bytearray(ZSTD)).topic_data
    bench.begin(client, k00_produce.API, 9, request)
    assert log_of(bench, "compacted").end == 0
    turns(bench)
    assert log_of(bench, "compacted").end == 100


def test_a_client_that_never_says_the_largest_timestamp_may_repeat_itself(
    bench: HandlerBench,
) -> None:
    for batch in (PLAIN, FEW_WITHOUT_TIMESTAMP, FEW_WITHOUT_TIMESTAMP):
        client = begin(bench, "plain", bytearray(batch))
        assert row_of(client).error_code == ErrorCode.NONE
    log = log_of(bench, "plain")
    found = log.read(0, 1_000_000, log.end, min_one=True)
    assert found is not None
    content = found.file.read(found.position, found.size)
    for header, kept in iterate_batches(content):
        assert header.max_timestamp == NOW_MS
        assert check_crc(kept)
    bench.aside = []
    client = begin(bench, "plain", bytearray(NO_TIMESTAMP))
    assert log.end == 3, "it has many records, so the loop does not look at them"
    turns(bench)
    assert row_of(client).base_offset == 3


def test_a_codec_that_the_topic_gets_meanwhile_is_kept_to(bench: HandlerBench) -> None:
    client = FakeClient()
    request = produce_request("packed", bytearray(PLAIN), acks=1)
    request.topic_data += produce_request("plain", bytearray(PLAIN)).topic_data
    bench.begin(client, k00_produce.API, 9, request)
    bench.replay(ConfigChanged(ResourceKind.TOPIC, "plain", "compression.type", "gzip"))
    turns(bench)
    found = log_of(bench, "plain").read(0, 1_000_000, 1, min_one=True)
    assert found is not None
    content = found.file.read(found.position, found.size)
    assert [header.codec_bits for header, _ in iterate_batches(content)] == [Codec.GZIP]


def wide_request(count: int, *, acks: int = 1) -> ProduceRequest:
    request = produce_request("plain", bytearray(PLAIN), acks=acks)
    request.topic_data[0].partition_data *= count
    return request


def test_others_have_their_turn_between_many_batches(bench: HandlerBench) -> None:
    client = FakeClient()
    count = 2 * limits.ROWS_PER_STEP + 1
    bench.begin(client, k00_produce.API, 9, wide_request(count))
    ends = []
    assert bench.aside is not None
    while bench.aside:
        assert not client.session.may_begin(barrier=False)
        bench.aside.pop(0)()
        ends.append(log_of(bench, "plain").end)
    assert ends == [limits.ROWS_PER_STEP, 2 * limits.ROWS_PER_STEP, count]
    (frame,) = client.frames()
    answer = decode_response(k00_produce.API, 9, memoryview(frame))[1]
    rows = answer.responses[0].partition_responses
    assert [row.base_offset for row in rows] == list(range(count))
    assert bench.broker.received.used == 0


def test_of_many_batches_no_more_are_appended_for_a_client_that_is_gone(
    bench: HandlerBench,
) -> None:
    client = FakeClient()
    bench.begin(client, k00_produce.API, 9, wide_request(2 * limits.ROWS_PER_STEP))
    assert bench.aside is not None
    bench.aside.pop(0)()
    client.session.abandon()
    turns(bench)
    assert log_of(bench, "plain").end == limits.ROWS_PER_STEP
    assert bench.broker.received.used == 0


@pytest.mark.parametrize("begun", range(3))
def test_all_batches_of_a_client_that_wants_no_answer_are_appended_though_it_is_gone(
    bench: HandlerBench, begun: int
) -> None:
    """It may disconnect at once: there is nothing it would wait for."""
    client = FakeClient()
    count = 3 * limits.ROWS_PER_STEP
    bench.begin(client, k00_produce.API, 9, wide_request(count, acks=0))
    assert bench.aside is not None
    for _ in range(begun):
        bench.aside.pop(0)()
    client.session.abandon()
    turns(bench)
    assert log_of(bench, "plain").end == count
    assert bench.broker.received.used == 0


def test_batches_are_not_acknowledged_if_another_broker_led_in_between(
    bench: HandlerBench,
) -> None:
    """This broker followed for a while, so its log may hold another one's records at the same
    offsets."""
    client = FakeClient()
    count = limits.ROWS_PER_STEP + 1
    bench.begin(client, k00_produce.API, 9, wide_request(count))
    assert bench.aside is not None
    bench.aside.pop(0)()
    topic_id, log = bench.broker.image.names["plain"].id, log_of(bench, "plain")
    bench.lose_leader(topic_id)
    log.truncate_to(0)
    for offset in range(count):
        batch = bytearray(PLAIN)
        place_batch(memoryview(batch), 0, base_offset=offset, leader_epoch=1)
        log.append_as_follower(bench.now, NOW_MS, memoryview(batch))
    again = led_here(leader_epoch=2, partition_epoch=2)
    bench.replay(PartitionChanged(topic_id, Partition(0), again))
    turns(bench)
    (frame,) = client.frames()
    answer = decode_response(k00_produce.API, 9, memoryview(frame))[1]
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (count - 1) + [ErrorCode.NONE]


def test_a_batch_of_a_topic_id_is_not_appended_to_the_next_topic_of_its_name(
    bench: HandlerBench,
) -> None:
    request = produce_request("packed", bytearray(PLAIN), acks=1)
    (topic,) = request.topic_data
    topic.topic_id = bench.broker.image.names["packed"].id
    client = FakeClient()
    bench.begin(client, k00_produce.API, 13, request)
    bench.delete(topic.topic_id)
    bench.topic("packed", compression_type="zstd")
    turns(bench)
    (frame,) = client.frames()
    answer = decode_response(k00_produce.API, 13, memoryview(frame))[1]
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert log_of(bench, "packed").end == 0
