"""Fingerprints of many small logs, computed in one session of Spark; run as a program.

It reads pairs of logs as JSON from standard input and prints for each pair whether the fingerprints
differ. Bytes are hexadecimal text, null is null, a timestamp is milliseconds since 1970.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from harness.spark.program import CONF
from tidelog.spark.pipelines.frames import fingerprints
from tidelog.spark.sessions import session

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


def main() -> None:
    pairs = json.loads(sys.stdin.read())
    rows = [
        row_of(f"{side}-{number}", offset, record)
        for number, pair in enumerate(pairs)
        for side, log in zip(SIDES, pair, strict=True)
        for offset, record in enumerate(log)
    ]
    spark = session("local[2]", conf={**CONF, "spark.sql.shuffle.partitions": "2"})
    found = fingerprints(spark.createDataFrame(rows, SCHEMA))
    differ = [
        len({found.get((f"{side}-{number}", 0)) for side in SIDES}) > 1
        for number in range(len(pairs))
    ]
    sys.stdout.write(json.dumps(differ) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
