"""Whole partitions, read by our own fetches, with every batch's checksum looked at."""

from dataclasses import dataclass

from harness.clients.raw_socket import RawClient
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch, k02_list_offsets
from tidelog.wire.records import check_crc, iterate_batches, iterate_records

VERSION = 11
PARTITION_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One record as it lies in the log."""

    offset: int
    value: bytes
    producer_id: int
    leader_epoch: int


class FetchRefusedError(Exception):
    """A partition answered with an error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1
) -> k01_fetch.FetchRequest:
    wanted = k01_fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES
    )
    return k01_fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=PARTITION_BYTES,
        topics=[k01_fetch.FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch_once(raw: RawClient, topic: str, offset: int, *, partition: int = 0) -> list[Row]:
    """What one fetch gives from that offset on."""
    request = fetch_request(topic, offset, partition=partition)
    answer = raw.ask(k01_fetch.API, VERSION, request).responses[0].partitions[0]
    if answer.error_code:
        raise FetchRefusedError(ErrorCode(answer.error_code))
    rows: list[Row] = []
    for header, batch in iterate_batches(memoryview(answer.records)):
        assert check_crc(batch), f"{topic}-{partition}: bad checksum at {header.base_offset}"
        epoch = header.partition_leader_epoch
        rows += [
            Row(record.offset, record.value or b"", header.producer_id, epoch)
            for record in iterate_records(batch)
            if record.offset >= offset
        ]
    return rows


def fetch_all(raw: RawClient, topic: str, *, partition: int = 0, start: int = 0) -> list[Row]:
    """Every record from `start` to the high watermark."""
    rows: list[Row] = []
    offset = start
    while more := fetch_once(raw, topic, offset, partition=partition):
        rows += more
        offset = more[-1].offset + 1
    return rows


def offset_at(
    raw: RawClient, topic: str, timestamp: int, *, partition: int = 0, epoch: int = -1
) -> int:
    """ListOffsets: -1 asks for the end, -2 for the start."""
    row = k02_list_offsets.ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = k02_list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[k02_list_offsets.ListOffsetsTopic(name=topic, partitions=[row])]
    )
    answer = raw.ask(k02_list_offsets.API, 5, request).topics[0].partitions[0]
    if answer.error_code:
        raise FetchRefusedError(ErrorCode(answer.error_code))
    offset = answer.offset
    assert isinstance(offset, int)
    return offset
