"""A reader in the middle of an answer gets all of it, though its records are deleted meanwhile."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clients.fetch_raw import VERSION, fetch_request, offset_at
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k01_fetch, k21_delete_records
from tidelog.wire.records import check_crc, iterate_batches

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BROKER = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
TOPIC = {"segment.bytes": "12700000", "file.delete.delay.ms": "0", "retention.ms": "-1"}
BATCH = batch_of(bytes(900_000))
BATCHES = 14  # of one segment
SMALL_WINDOW = 4_096


def delete_records(cluster: Cluster, topic: str) -> None:
    row = k21_delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    request = k21_delete_records.DeleteRecordsRequest(
        topics=[k21_delete_records.DeleteRecordsTopic(name=topic, partitions=[row])],
        timeout_ms=10_000,
    )
    with RawClient(cluster.bootstrap) as client:
        answer = client.ask(k21_delete_records.API, 2, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def let_it_grow_too_large(cluster: Cluster, topic: str) -> None:
    cluster.done("topic", "alter", topic, "--config", "retention.bytes=0")


@pytest.mark.parametrize("take_away", [delete_records, let_it_grow_too_large])
def test_a_reader_gets_the_whole_answer_it_was_promised(
    tmp_path: Path, take_away: Callable[[Cluster, str], None]
) -> None:
    """The answer is larger than what sockets hold, and read when its neighbours are long gone."""
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        with RawClient(cluster.bootstrap) as client:
            for _ in range(2 * BATCHES + 1):
                assert produce(client, topic, BATCH).error_code == ErrorCode.NONE
        folder = cluster.data / "broker-0/log0" / f"{topic}-0"
        read, other, _active = sorted(path.name for path in folder.glob("*.log"))
        with RawClient(cluster.bootstrap, receive_bytes=SMALL_WINDOW) as reader:
            reader.start(k01_fetch.API, VERSION, fetch_request(topic, 0))
            (promised,) = struct.unpack(">i", reader.receive(4))
            assert promised > 10_000_000
            take_away(cluster, topic)
            until(lambda: not list(folder.glob(f"{other}*")), "a file that nobody reads is gone")
            assert not (folder / read).exists(), "it is on its way out, too"
            frame = reader.receive(promised)
        row = decode_response(k01_fetch.API, VERSION, memoryview(frame))[1]
        records = row.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        found = [
            header.base_offset for header, batch in iterate_batches(records) if check_crc(batch)
        ]
        assert found == list(range(BATCHES))
        until(lambda: not list(folder.glob(f"{read}*")), "and the one that was read goes")
        with RawClient(cluster.bootstrap) as client:
            assert offset_at(client, topic, -2) >= 2 * BATCHES
