"""Deleted records stay deleted, whatever becomes of the broker that said so."""

from collections.abc import Callable

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce, k01_fetch, k21_delete_records

pytestmark = pytest.mark.slow

RECORDS = 400
SEGMENT_BYTES = 8_192


def kill_broker(cluster: Cluster) -> None:
    cluster.done("broker", "kill", "0")
    cluster.done("broker", "start", "0")


def stop_cluster(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start()


def kill_everything(cluster: Cluster) -> None:
    cluster.kill_everything()
    cluster.start()


@pytest.mark.parametrize("fate", [kill_broker, stop_cluster, kill_everything])
def test_what_was_deleted_does_not_come_back(
    fresh_cluster: Cluster, fate: Callable[[Cluster], None]
) -> None:
    topics = [
        fresh_cluster.create_topic(name, configs={"segment.bytes": str(size)})
        for name, size in (("one-segment", 1 << 20), ("many-segments", SEGMENT_BYTES))
    ]
    with RawClient(fresh_cluster.bootstrap) as client:
        for topic in topics:
            _fill(client, topic)

    # Each time it is the last thing the broker hears: no later checkpoint may help it.
    for start in (3, 150, 151, RECORDS):
        with RawClient(fresh_cluster.bootstrap) as client:
            for topic in topics:
                assert _delete(client, topic, start) == (ErrorCode.NONE, start)
        fate(fresh_cluster)
        with RawClient(fresh_cluster.bootstrap) as client:
            for topic in topics:
                assert _start_and_end(client, topic) == (start, RECORDS), topic
                assert _fetch(client, topic, start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def _fill(client: RawClient, topic: str) -> None:
    for _ in range(RECORDS // 2):
        request = produce_request(topic, batch_of(b"x" * 200, b"y" * 200))
        answer = client.ask(k00_produce.API, 9, request)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def _delete(client: RawClient, topic: str, offset: int) -> tuple[int, int]:
    row = k21_delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = k21_delete_records.DeleteRecordsRequest(
        topics=[k21_delete_records.DeleteRecordsTopic(name=topic, partitions=[row])],
        timeout_ms=10_000,
    )
    (answer,) = client.ask(k21_delete_records.API, 2, request).topics[0].partitions
    return answer.error_code, answer.low_watermark


def _fetch(client: RawClient, topic: str, offset: int) -> k01_fetch.PartitionData:
    answer = client.ask(k01_fetch.API, 11, fetch_request(topic, offset))
    row: k01_fetch.PartitionData = answer.responses[0].partitions[0]
    return row


def _start_and_end(client: RawClient, topic: str) -> tuple[int, int]:
    row = _fetch(client, topic, RECORDS)
    assert row.error_code == ErrorCode.NONE
    return row.log_start_offset, row.high_watermark
