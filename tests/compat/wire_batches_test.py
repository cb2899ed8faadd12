"""Batches of other clients are read here, and theirs read ours, in every codec."""

import warnings
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from tidelog.wire.codecs import Codec
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    iterate_records,
)

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # kafka-python reads its schemas in an old way
    KAFKA_PYTHON = import_module("kafka.record.default_records")

BUILDERS = {"aiokafka": AioBuilder, "kafka-python": KAFKA_PYTHON.DefaultRecordBatchBuilder}
READERS = {"aiokafka": AioBatch, "kafka-python": KAFKA_PYTHON.DefaultRecordBatch}
Builder = Any
"""Their classes have the same arguments and no common type."""

ORIGIN = Origin(producer_id=4711, producer_epoch=3, base_sequence=7, flags=TRANSACTIONAL_BIT)
JAVA_BATCHES = Path(__file__).with_name("java_batches.txt")
"""Written by Apache Kafka's kafka-clients 4.3.1: a codec and a batch in hex a line."""

JAVA_ORIGIN = Origin(producer_id=4711, producer_epoch=3, base_sequence=7)
JAVA_RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"v" * 300),
    Record(1, 1_700_000_000_005, None, b"v" * 300),
    Record(2, 1_700_000_000_001, b"k", None, (("h", b"x"), ("n", None))),
]


def records(count: int) -> list[Record]:
    random = Random(count)
    return [
        Record(
            offset=number,
            timestamp=1_700_000_000_000 + random.randrange(-100, 100_000),
            key=random.choice((None, b"", b"key-%d" % number)),
            value=random.choice((None, b"", b"v" * 400, random.randbytes(300))),
            headers=(("trace", b"1"), ("none", None)) if number % 3 == 0 else (),
        )
        for number in range(count)
    ]


def built_by(builder_class: Builder, codec: Codec, given: list[Record]) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=ORIGIN.producer_id,
        producer_epoch=ORIGIN.producer_epoch,
        base_sequence=ORIGIN.base_sequence,
        batch_size=1 << 20,
    )
    for record in given:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("client", BUILDERS)
@pytest.mark.parametrize("count", [1, 7, 700])
def test_a_batch_of_another_client_is_read(client: str, codec: Codec, count: int) -> None:
    given = records(count)
    built = memoryview(built_by(BUILDERS[client], codec, given))
    [(header, batch)] = iterate_batches(built)
    assert check_crc(batch)
    # kafka-python leaves a batch plain that its codec would make longer.
    assert header.codec_bits == codec or (count == 1 and header.codec_bits == 0)
    assert header.is_transactional
    assert header[-4:] == (4711, 3, 7, count)
    assert list(iterate_records(batch)) == given


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("count", [1, 7, 700])
def test_another_client_reads_our_batch(client: str, codec: Codec, count: int) -> None:
    given = records(count)
    batch = READERS[client](bytes(build_batch(given, codec=codec, origin=ORIGIN)))
    assert batch.validate_crc()
    assert batch.producer_id == 4711
    read = [
        Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch
    ]
    assert read == given


@pytest.mark.parametrize("client", BUILDERS)
def test_an_uncompressed_batch_is_built_as_another_client_does(client: str) -> None:
    given = records(50)
    theirs = bytearray(built_by(BUILDERS[client], Codec.NONE, given))
    ours = build_batch(given, origin=ORIGIN)
    # Clients leave the leader epoch, which lies outside the CRC, at -1 or 0.
    theirs[12:16] = ours[12:16]
    assert ours == theirs


@pytest.mark.parametrize("line", JAVA_BATCHES.read_text().splitlines(), ids=lambda line: line[:4])
def test_a_batch_of_java_is_read(line: str) -> None:
    name, text = line.split()
    [(header, batch)] = iterate_batches(memoryview(bytes.fromhex(text)))
    assert check_crc(batch)
    assert Codec(header.codec_bits).name.lower() == name
    assert list(iterate_records(batch)) == JAVA_RECORDS
    ours = build_batch(JAVA_RECORDS, codec=Codec(header.codec_bits), origin=JAVA_ORIGIN)
    if name in {"none", "lz4"}:
        assert ours == batch
