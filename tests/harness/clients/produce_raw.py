"""Produce requests with batches that tests shape, or misshape, byte by byte."""

from harness.clients.raw_socket import RawClient
from tidelog.wire.codecs import Codec
from tidelog.wire.messages.k00_produce import (
    API,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.records import PLAIN, Origin, Record, build_batch

VERSION = 9


def batch_of(
    *values: bytes,
    codec: Codec = Codec.NONE,
    timestamp: int = 1_000,
    origin: Origin = PLAIN,
) -> bytearray:
    """One good batch without keys."""
    return build_batch(
        [
            Record(offset=index, timestamp=timestamp, key=None, value=value, headers=())
            for index, value in enumerate(values)
        ],
        codec=codec,
        origin=origin,
    )


def produce_request(
    topic: str, batch: bytes | bytearray | None, *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(
        index=partition, records=None if batch is None else memoryview(batch)
    )
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(
    raw: RawClient,
    topic: str,
    batch: bytes | bytearray | None,
    *,
    acks: int = -1,
    partition: int = 0,
    version: int = VERSION,
) -> PartitionProduceResponse:
    """Produce one batch; the one row of the answer."""
    request = produce_request(topic, batch, acks=acks, partition=partition)
    answer = raw.ask(API, version, request)
    row = answer.responses[0].partition_responses[0]
    assert isinstance(row, PartitionProduceResponse)
    return row
