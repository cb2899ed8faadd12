"""Partitions this broker does not lead, or cannot read: each API says which it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import HandlerBench
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Partition, Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce, k01_fetch, k02_list_offsets
from tidelog.wire.metadata_records import PartitionCreated, PartitionView, TopicCreated

OTHER = BrokerId(7)
Asking = Callable[[HandlerBench, str], int]


def produced(bench: HandlerBench, topic: str) -> int:
    answer = bench.ask(k00_produce.API, 9, produce_request(topic, batch_of(b"x")))
    return int(answer.responses[0].partition_responses[0].error_code)


def fetched(bench: HandlerBench, topic: str) -> int:
    asked = k01_fetch.FetchPartition(partition=0, partition_max_bytes=1_000)
    request = k01_fetch.FetchRequest(topics=[k01_fetch.FetchTopic(topic=topic, partitions=[asked])])
    answer: Any = bench.ask(k01_fetch.API, 11, request)
    return int(answer.responses[0].partitions[0].error_code)


def listed(bench: HandlerBench, topic: str) -> int:
    asked = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=0)
    request = k02_list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[k02_list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer: Any = bench.ask(k02_list_offsets.API, 7, request)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("ask", [produced, fetched, listed])
def test_a_partition_of_another_broker_is_told_from_one_that_is_nowhere(
    tmp_path: Path, ask: Asking
) -> None:
    bench = HandlerBench(tmp_path)
    topic = Uuid(b"t" * 16)
    view = PartitionView(replicas=(OTHER,), isr=(OTHER,), leader=OTHER)
    bench.replay(TopicCreated(topic, "theirs"), PartitionCreated(topic, Partition(0), view))
    assert ask(bench, "theirs") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(bench, "nobody-s") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_log_that_cannot_be_read_for_its_times_is_an_error_of_that_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = HandlerBench(tmp_path)
    bench.topic("t")
    assert produced(bench, "t") == ErrorCode.NONE

    def unreadable(*_: object) -> None:
        raise CorruptError(file="t-0", position=0, reason="planted")

    replica = bench.broker.replicas.get(("t", Partition(0)))
    assert replica is not None
    monkeypatch.setattr(type(replica.log), "offset_for_timestamp", unreadable)
    assert listed(bench, "t") == ErrorCode.KAFKA_STORAGE_ERROR
    assert [key for key, _ in bench.failures] == [("t", 0)]
