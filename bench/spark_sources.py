"""Data sources of Spark to compare with: one built on confluent-kafka, and one that only has rows
in memory, which shows what Spark itself takes for rows that come from and go to Python."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

_ROWS_AT_ONCE = 10_000
_PATIENCE_S = 30.0
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)


class PlainSource(DataSource):
    """What one writes in an afternoon."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's
        return _PlainReader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class _PlainReader(DataSourceReader):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._conf = {
            "bootstrap.servers": bootstrap,
            "group.id": "spark-io",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
        }
        self._topic = topic

    def partitions(self) -> Sequence[InputPartition]:
        consumer = Consumer(self._conf)
        topics = consumer.list_topics(self._topic, _PATIENCE_S).topics
        found = []
        for number in topics[self._topic].partitions:
            ends = consumer.get_watermark_offsets(TopicPartition(self._topic, number), _PATIENCE_S)
            found.append(InputPartition((number, *ends)))
        consumer.close()
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        number, at, end = partition.value
        consumer = Consumer(self._conf)
        consumer.assign([TopicPartition(self._topic, number, at)])
        while at < end:
            wanted = min(_ROWS_AT_ONCE, end - at)
            messages = consumer.consume(wanted, _PATIENCE_S)
            assert messages, f"{self._topic}-{number}: nothing at {at} of {end}"
            at = (messages[-1].offset() or 0) + 1
            yield _batch_of(messages)
        consumer.close()


def _batch_of(messages: list[Any]) -> Any:  # noqa: ANN401 -- a RecordBatch
    stamps = [one.timestamp() for one in messages]
    columns = [
        [one.key() for one in messages],
        [one.value() for one in messages],
        [one.topic() for one in messages],
        [one.partition() for one in messages],
        [one.offset() for one in messages],
        [stamp * 1000 for _, stamp in stamps],
        [kind for kind, _ in stamps],
    ]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


class MemorySource(DataSource):
    """Rows that are there, and nobody who wants them."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's
        return _MemoryReader(*json.loads(self.options["subscribe"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001 -- Spark's
        return _Drain()


class _MemoryReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int, parts: int) -> None:
        self._rows = rows // parts
        self._value_bytes = value_bytes
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        count = min(_ROWS_AT_ONCE, self._rows)
        columns = [
            [b"%07d" % row for row in range(count)],
            [b"x" * self._value_bytes] * count,
            ["topic"] * count,
            [partition.value] * count,
            list(range(count)),
            [1_700_000_000_000_000] * count,
            [0] * count,
        ]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, _ARROW, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
        for at in range(0, self._rows, count):
            yield batch.slice(0, min(count, self._rows - at))


class _Drain(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            """Rows are taken, as a writer must."""
        return WriterCommitMessage()


def produce_rows(bootstrap: str, topic: str, rows: Iterator[Row]) -> None:
    """One task's, by hand."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for row in rows:
        while True:
            try:
                producer.produce(topic, bytes(row.value), bytes(row.key))
            except BufferError:
                producer.poll(0.05)
            else:
                break
    assert producer.flush(_PATIENCE_S) == 0
