"""The data plane's handlers, a frame in and an answer out, without sockets or processes."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import START_MS, FakeClient, HandlerBench
from tidelog.kernel.ids import Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.net.client import CloseConnectionError
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k22_init_producer_id,
)
from tidelog.wire.records import Origin, Record, build_batch, iterate_batches, iterate_records


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def produced(bench: HandlerBench, topic: str, *values: bytes, acks: int = -1) -> Any:
    request = produce_request(topic, batch_of(*values), acks=acks)
    return bench.ask(k00_produce.API, 9, request).responses[0].partition_responses[0]


def fetch_request(topic: str | Uuid, *offsets: int, **fields: Any) -> k01_fetch.FetchRequest:
    """One topic, by name or by id, its partitions from 0 on at these offsets."""
    partitions = [
        k01_fetch.FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=1_000_000)
        for n, offset in enumerate(offsets)
    ]
    asked = k01_fetch.FetchTopic(partitions=partitions)
    if isinstance(topic, str):
        asked.topic = topic
    else:
        asked.topic_id = topic
    given: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": [asked]}
    return k01_fetch.FetchRequest(**given | fields)


def values_of(row: Any) -> list[bytes | None]:
    return [
        record.value
        for _, batch in iterate_batches(row.records)
        for record in iterate_records(batch)
    ]


def decoded(api: Any, version: int, frame: bytes) -> Any:
    return decode_response(api, version, memoryview(frame))[1]


def test_what_is_produced_is_fetched(bench: HandlerBench) -> None:
    bench.topic("t")
    assert produced(bench, "t", b"a", b"b").base_offset == 0
    assert produced(bench, "t", b"c").base_offset == 2
    answer = bench.ask(k01_fetch.API, 11, fetch_request("t", 1))
    row = answer.responses[0].partitions[0]
    assert (row.error_code, row.high_watermark, row.log_start_offset) == (0, 3, 0)
    assert values_of(row) == [b"a", b"b", b"c"]  # from the batch that holds offset 1


def test_a_fetch_waits_until_enough_has_come(bench: HandlerBench) -> None:
    bench.topic("t")
    client = FakeClient()
    request = fetch_request("t", 0, max_wait_ms=500, min_bytes=1)
    bench.begin(client, k01_fetch.API, 11, request)
    assert client.frames() == []
    produced(bench, "t", b"late")
    (frame,) = client.frames()
    row = decoded(k01_fetch.API, 11, frame).responses[0].partitions[0]
    assert values_of(row) == [b"late"]
    assert bench.broker.waiting.count == 0


def test_a_fetch_answers_at_its_deadline_with_what_there_is(bench: HandlerBench) -> None:
    bench.topic("t")
    client = FakeClient()
    request = fetch_request("t", 0, max_wait_ms=500, min_bytes=10_000)
    bench.begin(client, k01_fetch.API, 11, request)
    produced(bench, "t", b"little")
    assert client.frames() == []
    bench.broker.waiting.expire(Instant(bench.now + ms(500)))
    (frame,) = client.frames()
    assert values_of(decoded(k01_fetch.API, 11, frame).responses[0].partitions[0]) == [b"little"]


def test_a_waiting_fetch_learns_that_its_topic_is_gone(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    client = FakeClient()
    bench.begin(client, k01_fetch.API, 11, fetch_request("t", 0, max_wait_ms=60_000))
    bench.delete(topic)
    (frame,) = client.frames()
    row = decoded(k01_fetch.API, 11, frame).responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_learns_that_its_leader_is_gone(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    client = FakeClient()
    bench.begin(client, k01_fetch.API, 11, fetch_request("t", 0, max_wait_ms=60_000))
    bench.lose_leader(topic)
    (frame,) = client.frames()
    row = decoded(k01_fetch.API, 11, frame).responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_abandoned_fetch_is_not_read_for(bench: HandlerBench) -> None:
    bench.topic("t")
    client = FakeClient()
    bench.begin(client, k01_fetch.API, 11, fetch_request("t", 0, max_wait_ms=500))
    client.session.closing = True
    produced(bench, "t", b"x")
    assert client.frames() == []
    assert bench.broker.waiting.count == 0


def test_a_topic_is_fetched_by_its_id(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    produced(bench, "t", b"x")
    answer = bench.ask(k01_fetch.API, 16, fetch_request(topic, 0))
    assert answer.responses[0].topic_id == topic
    assert values_of(answer.responses[0].partitions[0]) == [b"x"]


def test_an_incremental_fetch_lists_only_what_changed(bench: HandlerBench) -> None:
    bench.topic("t", partitions=3)
    first = bench.ask(k01_fetch.API, 11, fetch_request("t", 0, 0, 0, session_epoch=0))
    assert len(first.responses[0].partitions) == 3
    produced(bench, "t", b"x")
    goes_on = {"session_id": first.session_id, "session_epoch": 1, "topics": []}
    second = bench.ask(k01_fetch.API, 11, fetch_request("t", **goes_on))
    assert [row.partition_index for row in second.responses[0].partitions] == [0]
    goes_on["session_epoch"] = 2
    bench.ask(k01_fetch.API, 11, fetch_request("t", 1, **goes_on | {"topics": []}))
    goes_on |= {"session_epoch": 3, "topics": fetch_request("t", 1).topics}
    fourth = bench.ask(k01_fetch.API, 11, fetch_request("t", **goes_on))
    assert fourth.responses == []


def test_a_session_forgets_what_it_is_told_to(bench: HandlerBench) -> None:
    bench.topic("t", partitions=2)
    first = bench.ask(k01_fetch.API, 11, fetch_request("t", 0, 0, session_epoch=0))
    produced(bench, "t", b"x")
    forgotten = [k01_fetch.ForgottenTopic(topic="t", partitions=[0])]
    goes_on = {
        "session_id": first.session_id,
        "session_epoch": 1,
        "topics": [],
        "forgotten_topics_data": forgotten,
    }
    assert bench.ask(k01_fetch.API, 11, fetch_request("t", **goes_on)).responses == []


def test_a_diverging_client_is_told_where_its_log_parts_from_ours(bench: HandlerBench) -> None:
    bench.topic("t")
    produced(bench, "t", b"a", b"b")
    request = fetch_request("t", 2)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    row = bench.ask(k01_fetch.API, 12, request).responses[0].partitions[0]
    assert row.diverging_epoch is None
    request.topics[0].partitions[0].fetch_offset = 9
    row = bench.ask(k01_fetch.API, 12, request).responses[0].partitions[0]
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 2)
    request.topics[0].partitions[0].last_fetched_epoch = 7
    row = bench.ask(k01_fetch.API, 12, request).responses[0].partitions[0]
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_read_committed_gets_an_empty_list_of_aborted_transactions_not_null(
    bench: HandlerBench,
) -> None:
    bench.topic("t")
    row = bench.ask(k01_fetch.API, 11, fetch_request("t", 0)).responses[0].partitions[0]
    assert row.aborted_transactions is None
    request = fetch_request("t", 0, isolation_level=1)
    row = bench.ask(k01_fetch.API, 11, request).responses[0].partitions[0]
    assert row.aborted_transactions == []


def list_offset(bench: HandlerBench, timestamp: int, version: int = 7, epoch: int = -1) -> Any:
    asked = k02_list_offsets.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = k02_list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[k02_list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    )
    return bench.ask(k02_list_offsets.API, version, request).topics[0].partitions[0]


def test_offsets_are_listed_by_position_and_by_time(bench: HandlerBench) -> None:
    bench.topic("t")
    for stamp in (100, 300, 200):
        record = Record(offset=0, timestamp=START_MS + stamp, key=None, value=b"x")
        bench.ask(k00_produce.API, 9, produce_request("t", build_batch([record])))
    assert list_offset(bench, -1).offset == 3
    assert list_offset(bench, -2).offset == 0
    assert list_offset(bench, -3).offset == 1
    assert list_offset(bench, -4, version=8).offset == 0
    assert list_offset(bench, -5, version=9).offset == -1
    assert list_offset(bench, -6, version=11).offset == -1
    assert list_offset(bench, START_MS + 150).offset == 1
    assert list_offset(bench, START_MS + 301).offset == -1
    assert list_offset(bench, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(bench, -6, version=10).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(bench, -1, epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_who_leaves_a_replica_in_its_question_for_offsets_is_answered(bench: HandlerBench) -> None:
    bench.topic("t")
    produced(bench, "t", b"x")
    asked = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = k02_list_offsets.ListOffsetsTopic(name="t", partitions=[asked])
    request = k02_list_offsets.ListOffsetsRequest(replica_id=0, topics=[topic])
    (row,) = bench.ask(k02_list_offsets.API, 7, request).topics[0].partitions
    assert (row.error_code, row.offset) == (0, 1)


def test_a_partition_listed_twice_is_an_error_for_that_partition(bench: HandlerBench) -> None:
    bench.topic("t")
    asked = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = k02_list_offsets.ListOffsetsTopic(name="t", partitions=[asked, asked])
    request = k02_list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
    (row,) = bench.ask(k02_list_offsets.API, 7, request).topics[0].partitions
    assert row.error_code == ErrorCode.INVALID_REQUEST


def test_produce_without_acks_is_not_answered(bench: HandlerBench) -> None:
    bench.topic("t")
    client = FakeClient()
    bench.begin(client, k00_produce.API, 9, produce_request("t", batch_of(b"x"), acks=0))
    assert client.frames() == []
    assert client.session.in_flight == 0
    assert list_offset(bench, -1).offset == 1


def test_produce_without_acks_to_nowhere_ends_the_connection(bench: HandlerBench) -> None:
    with pytest.raises(CloseConnectionError):
        bench.begin(FakeClient(), k00_produce.API, 9, produce_request("no", batch_of(b"x"), acks=0))


def test_a_duplicate_gets_its_first_offset_and_wakes_nobody(bench: HandlerBench) -> None:
    bench.topic("t")
    record = Record(offset=0, timestamp=1, key=None, value=b"x")
    batch = build_batch([record], origin=Origin(producer_id=5, producer_epoch=0, base_sequence=0))
    rows = [
        bench.ask(k00_produce.API, 9, produce_request("t", bytearray(batch)))
        .responses[0]
        .partition_responses[0]
        for _ in range(2)
    ]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 0)]
    assert list_offset(bench, -1).offset == 1


def test_append_time_is_the_broker_s_and_is_told(bench: HandlerBench) -> None:
    bench.topic("t", message_timestamp_type="LogAppendTime")
    row = produced(bench, "t", b"x")
    assert row.log_append_time_ms == START_MS
    answer = bench.ask(k01_fetch.API, 11, fetch_request("t", 0))
    ((_, batch),) = iterate_batches(answer.responses[0].partitions[0].records)
    assert [record.timestamp for record in iterate_records(batch)] == [START_MS]


def test_a_changed_setting_rules_the_next_batch(bench: HandlerBench) -> None:
    bench.topic("t", max_message_bytes="500")
    assert produced(bench, "t", bytes(600)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(bench, "t", bytes(100)).error_code == ErrorCode.NONE


def test_metadata_names_this_broker_and_the_leader(bench: HandlerBench) -> None:
    topic = bench.topic("t", partitions=2)
    answer = bench.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(0, "127.0.0.1", 9092)]
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 0)
    (row,) = answer.topics
    assert (row.name, row.topic_id, row.is_internal) == ("t", topic, False)
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in row.partitions] == [
        (0, 0, [0]),
        (1, 0, [0]),
    ]


def test_no_topics_in_version_zero_are_all_and_later_none(bench: HandlerBench) -> None:
    bench.topic("t")
    nothing = k03_metadata.MetadataRequest(topics=[])
    assert len(bench.ask(k03_metadata.API, 0, nothing).topics) == 1
    assert bench.ask(k03_metadata.API, 1, nothing).topics == []


def test_a_partition_without_leader_is_said_so(bench: HandlerBench) -> None:
    bench.lose_leader(bench.topic("t"))
    answer = bench.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))
    (row,) = answer.topics[0].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_a_missing_topic_is_created_through_the_coordinator_and_then_told(
    bench: HandlerBench,
) -> None:
    client = FakeClient()
    asked = [k03_metadata.MetadataRequestTopic(name="new")]
    bench.begin(client, k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=asked))
    assert client.frames() == []
    ((key, _),) = bench.link.forwarded
    assert key == 19
    bench.topic("new")
    bench.link.done.pop()(ErrorCode.REQUEST_TIMED_OUT)  # made all the same
    (frame,) = client.frames()
    (row,) = decoded(k03_metadata.API, 12, frame).topics
    assert (row.error_code, len(row.partitions)) == (0, 1)


def test_a_missing_topic_that_cannot_be_made_is_not_there_yet(bench: HandlerBench) -> None:
    client = FakeClient()
    asked = [k03_metadata.MetadataRequestTopic(name="new")]
    bench.begin(client, k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=asked))
    bench.link.done.pop()(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (frame,) = client.frames()
    assert decoded(k03_metadata.API, 12, frame).topics[0].error_code == (
        ErrorCode.LEADER_NOT_AVAILABLE
    )


def test_where_automatic_creation_is_off_nothing_is_forwarded(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path, auto_create_topics_enable="false")
    asked = [k03_metadata.MetadataRequestTopic(name="new")]
    answer = bench.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=asked))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.link.forwarded == []


def test_every_asker_gets_a_producer_id_of_its_own(bench: HandlerBench) -> None:
    request = k22_init_producer_id.InitProducerIdRequest(transactional_id=None)
    ids = [bench.ask(k22_init_producer_id.API, 4, request).producer_id for _ in range(25)]
    assert len(set(ids)) == 25


def test_answers_on_one_connection_come_in_order_of_its_requests(bench: HandlerBench) -> None:
    bench.topic("t")
    client = FakeClient()
    for value in (b"1", b"2", b"3"):
        bench.begin(client, k00_produce.API, 9, produce_request("t", batch_of(value)))
    offsets = [
        decoded(k00_produce.API, 9, frame).responses[0].partition_responses[0].base_offset
        for frame in client.frames()
    ]
    assert offsets == [0, 1, 2]
