"""Bad batches: each has its answer, nothing of them is stored, and nobody else notices."""

import struct
from collections.abc import Callable, Iterator

import pytest
from crc32c import crc32c

from harness.clients.produce_raw import batch_of, produce, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce
from tidelog.wire.messages.k02_list_offsets import (
    API as LIST_OFFSETS,
)
from tidelog.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.records import Origin, Record, build_batch

pytestmark = pytest.mark.slow

Misshape = Callable[[bytearray], None]


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic()


def end_of(raw: RawClient, topic: str) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    answer = raw.ask(LIST_OFFSETS, 5, request)
    offset = answer.topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


def put(at: int, form: str, value: int, *, seal: bool = True) -> Misshape:
    """Overwrite a header field, then make the CRC right again unless told not to."""

    def change(batch: bytearray) -> None:
        struct.pack_into(form, batch, at, value)
        if seal:
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))

    return change


def flip_last_byte(batch: bytearray) -> None:
    batch[-1] ^= 0xFF


def cut_tail(batch: bytearray) -> None:
    del batch[-3:]


def double(batch: bytearray) -> None:
    batch += bytes(batch)


CASES: dict[str, tuple[Misshape, ErrorCode]] = {
    "wrong crc": (flip_last_byte, ErrorCode.CORRUPT_MESSAGE),
    "cut": (cut_tail, ErrorCode.CORRUPT_MESSAGE),
    "length too large": (put(8, ">i", 10_000, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (put(8, ">i", -1, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (put(16, ">b", 1, seal=False), ErrorCode.INVALID_RECORD),
    "magic 0": (put(16, ">b", 0, seal=False), ErrorCode.INVALID_RECORD),
    "codec 5": (put(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (put(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "append time bit": (put(21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    # No transactional id stands beside it, and what has none may write for none.
    "transactional": (put(21, ">h", 16), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "control": (put(21, ">h", 32), ErrorCode.INVALID_RECORD),
    "base offset 5": (put(0, ">q", 5, seal=False), ErrorCode.INVALID_RECORD),
    "count 9 of delta 1": (put(57, ">i", 9), ErrorCode.INVALID_RECORD),
    "count 0": (put(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "count negative": (put(57, ">i", -1), ErrorCode.INVALID_RECORD),
    "delta negative": (put(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "producer without sequence": (put(43, ">q", 4), ErrorCode.INVALID_RECORD),
    "two batches": (double, ErrorCode.INVALID_RECORD),
    "far future": (put(35, ">q", 2**62), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("case", CASES)
def test_a_misshapen_batch_gets_its_error_and_stores_nothing(
    raw: RawClient, topic: str, case: str
) -> None:
    misshape, code = CASES[case]
    batch = batch_of(b"one", b"two")
    misshape(batch)
    row = produce(raw, topic, batch)
    assert ErrorCode(row.error_code) is code
    assert row.base_offset == -1
    assert end_of(raw, topic) == 0
    assert produce(raw, topic, batch_of(b"good")).base_offset == 0


@pytest.mark.parametrize("batch", [None, b"", b"x", bytes(60)], ids=["null", "empty", "1", "60"])
def test_what_is_no_batch_at_all_is_refused(
    raw: RawClient, topic: str, batch: bytes | None
) -> None:
    row = produce(raw, topic, batch)
    assert row.error_code in {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}
    assert end_of(raw, topic) == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing_are_refused(raw: RawClient, topic: str, acks: int) -> None:
    row = produce(raw, topic, batch_of(b"x"), acks=acks)
    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_of(raw, topic) == 0


def test_a_bad_batch_without_acks_ends_the_connection_and_stores_nothing(
    cluster: Cluster, raw: RawClient, topic: str
) -> None:
    batch = batch_of(b"x")
    flip_last_byte(batch)
    raw.start(k00_produce.API, 9, produce_request(topic, batch, acks=0))
    assert raw.is_closed_by_peer()
    with RawClient(cluster.bootstrap) as other:
        assert end_of(other, topic) == 0


def test_a_good_batch_without_acks_is_stored_and_not_answered(raw: RawClient, topic: str) -> None:
    raw.start(k00_produce.API, 9, produce_request(topic, batch_of(b"x"), acks=0))
    assert end_of(raw, topic) == 1


def test_a_batch_over_the_topic_s_limit_is_too_large(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic(configs={"max.message.bytes": "1000"})
    assert produce(raw, topic, batch_of(bytes(900))).error_code == ErrorCode.NONE
    assert produce(raw, topic, batch_of(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_over_the_segment_size_is_refused(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic(configs={"segment.bytes": "4096"})
    assert produce(raw, topic, batch_of(bytes(5000))).error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_needs_version_seven(raw: RawClient, topic: str) -> None:
    batch = batch_of(b"x" * 100, codec=Codec.ZSTD)
    row = produce(raw, topic, batch, version=6)
    assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(raw, topic, batch, version=7).error_code == ErrorCode.NONE


def test_a_record_without_key_on_a_compacted_topic_is_named(
    cluster: Cluster, raw: RawClient
) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    records = [
        Record(offset=0, timestamp=1, key=b"k", value=b"v"),
        Record(offset=1, timestamp=1, key=None, value=b"v"),
    ]
    row = produce(raw, topic, build_batch(records))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [1]
    assert end_of(raw, topic) == 0


def test_sequences_follow_the_rules_of_idempotence(raw: RawClient, topic: str) -> None:
    def send(sequence: int, epoch: int = 0, count: int = 1) -> tuple[ErrorCode, int]:
        records = [Record(offset=n, timestamp=1, key=None, value=b"v") for n in range(count)]
        origin = Origin(producer_id=900, producer_epoch=epoch, base_sequence=sequence)
        row = produce(raw, topic, build_batch(records, origin=origin))
        return ErrorCode(row.error_code), row.base_offset

    assert send(5) == (ErrorCode.NONE, 0)  # an unknown producer may start anywhere
    assert send(6, count=3) == (ErrorCode.NONE, 1)
    assert send(6, count=3) == (ErrorCode.NONE, 1)  # a duplicate gets the first offsets
    assert send(5) == (ErrorCode.NONE, 0)
    assert send(10)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(9) == (ErrorCode.NONE, 4)
    assert send(3, epoch=1)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, epoch=1) == (ErrorCode.NONE, 5)
    assert send(10, epoch=0)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_of(raw, topic) == 6


def test_one_bad_partition_does_not_hurt_the_others(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic(partitions=3)
    bad = batch_of(b"bad")
    flip_last_byte(bad)
    request = produce_request(topic, batch_of(b"a"))
    rows = request.topic_data[0].partition_data
    for index, batch in ((1, bad), (2, batch_of(b"c")), (7, batch_of(b"d"))):
        rows.append(k00_produce.PartitionProduceData(index=index, records=memoryview(batch)))
    answer = raw.ask(k00_produce.API, 9, request)
    codes = {
        row.index: ErrorCode(row.error_code) for row in answer.responses[0].partition_responses
    }
    assert codes == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
