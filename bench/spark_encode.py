"""How many rows of Arrow's columns a processor second makes into record batches.

By the column, and by a loop in Python over the rows; keys are hashed by the column as well.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from tidelog.spark.arrow import Encoder, partitions_of
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Record, build_batch
from workloads import values

_NOW_MS = 1_700_000_000_000
_PARTITIONS = 12
_ROWS_AT_ONCE = 10_000
"""As Spark gives them."""
GOALS = {"columns_rows_per_cpu_s": 3_000_000}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["spark_encode.py", "spark_encode.py --batch 1000000 --codec zstd"]
    )
    asked.add_argument("--size", type=int, default=100, help="bytes of a value (100)")
    asked.add_argument("--rows", type=int, default=200_000, help="to encode (200000)")
    asked.add_argument("--batch", type=int, default=16_384, help="bytes of a batch (16384)")
    asked.add_argument("--codec", default="none", choices=[one.name.lower() for one in Codec])
    return asked


def parts_of(asked: argparse.Namespace) -> list[Any]:
    texts = values(asked.size)
    return [
        pa.RecordBatch.from_pydict(
            {
                "key": [b"key-%05d" % (row % 100_000) for row in rows],
                "value": [texts[row % len(texts)] for row in rows],
            }
        )
        for at in range(0, asked.rows, _ROWS_AT_ONCE)
        for rows in [range(at, min(at + _ROWS_AT_ONCE, asked.rows))]
    ]


def by_columns(encoder: Encoder, parts: list[Any]) -> int:
    return sum(one.rows for part in parts for one in encoder.encode(part, now_ms=_NOW_MS))


def by_records(codec: Codec, batch_bytes: int, parts: list[Any]) -> int:
    found = 0
    for part in parts:
        keys, texts = part.column("key").to_pylist(), part.column("value").to_pylist()
        step = max(1, batch_bytes // (len(keys[0]) + len(texts[0]) + 8))
        for at in range(0, len(keys), step):
            pairs = zip(keys[at : at + step], texts[at : at + step], strict=True)
            rows = [Record(number, _NOW_MS, *pair) for number, pair in enumerate(pairs)]
            found += len(rows) if build_batch(rows, codec=codec) else 0
    return found


def hashed(parts: list[Any]) -> int:
    return sum(len(partitions_of(part.column("key"), _PARTITIONS)) for part in parts)


def rows_per_cpu_s(call: Callable[[], int], rows: int) -> int:
    began = time.process_time()
    assert call() == rows
    return round(rows / (time.process_time() - began))


def one(asked: argparse.Namespace, parts: list[Any]) -> Figures:
    meter = Meter([])
    codec = Codec[asked.codec.upper()]
    ways = {
        "columns": partial(by_columns, Encoder(codec, batch_bytes=asked.batch), parts),
        "records": partial(by_records, codec, asked.batch, parts),
        "hashed": partial(hashed, parts),
    }
    figures = {
        f"{name}_rows_per_cpu_s": rows_per_cpu_s(way, asked.rows) for name, way in ways.items()
    }
    return {**figures, "other_share": meter.stop()["other_share"]}


def run(asked: argparse.Namespace) -> None:
    parts = parts_of(asked)
    runs = repeat(asked, lambda: one(asked, parts))
    names = [name for name in runs[0] if name not in {"other_share", "noisy"}]
    settings = {
        "size": asked.size,
        "batch": asked.batch,
        "codec": asked.codec,
        "rows": asked.rows,
        "versions": versions("numpy", "pyarrow"),
    }
    figures = {name: middle(runs, name) for name in names}
    report("spark_encode", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
