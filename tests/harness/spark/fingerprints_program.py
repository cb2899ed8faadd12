"""Fingerprints of many small logs, computed in one session of Spark.

Bytes are hexadecimal text, null is null, a timestamp is milliseconds since 1970.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from tidelog.spark.pipelines.frames import fingerprints

SCHEMA = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
SIDES = ("before", "after")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(topic: str, offset: int, record: list[Any]) -> tuple[Any, ...]:
    """A record as Spark takes it."""
    key, value, headers, at_ms = record
    named = None if headers is None else [(name, _bytes(one)) for name, one in headers]
    return (
        topic,
        0,
        offset,
        _bytes(key),
        _bytes(value),
        named,
        _EPOCH + timedelta(milliseconds=at_ms),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def answers(spark: SparkSession, asked: dict[str, Any]) -> list[bool]:
    """Of each pair, whether the fingerprints differ."""
    pairs = asked["pairs"]
    rows = [
        row_of(f"{side}-{number}", offset, record)
        for number, pair in enumerate(pairs)
        for side, log in zip(SIDES, pair, strict=True)
        for offset, record in enumerate(log)
    ]
    found = fingerprints(spark.createDataFrame(rows, SCHEMA))
    return [
        len({found.get((f"{side}-{number}", 0)) for side in SIDES}) > 1
        for number in range(len(pairs))
    ]
