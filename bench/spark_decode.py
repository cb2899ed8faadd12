"""How many rows of Spark's columns a processor second makes of record batches.

By the column, by a loop in Python over the plain reader's records, and by confluent-kafka, whose
messages a loop puts into Arrow (all its threads count; its rows come through a socket).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from clusters import running
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from tidelog.kernel.ids import Partition
from tidelog.spark.arrow import PLAIN, Decoder, Encoder
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Record, iterate_batches, iterate_records, place_batch
from workloads import PARTITIONS, TUNED_CONSUMER, fill, values

_TOPIC = "spark-decode"
_ROWS_AT_ONCE = 10_000
GOALS = {"columns_rows_per_cpu_s": 3_000_000}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["spark_decode.py", "spark_decode.py --batch 1000000 --codec zstd"]
    )
    asked.add_argument("--size", type=int, default=100, help="bytes of a value (100)")
    asked.add_argument("--rows", type=int, default=500_000, help="to decode (500000)")
    asked.add_argument("--batch", type=int, default=16_384, help="bytes of a batch (16384)")
    asked.add_argument("--codec", default="none", choices=[one.name.lower() for one in Codec])
    asked.add_argument("--no-client", action="store_true", help="leave confluent-kafka out")
    return asked


def log_of(asked: argparse.Namespace) -> bytes:
    """Batches back to back, as in a segment."""
    texts = values(asked.size)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [b"key-%05d" % (row % 100_000) for row in range(asked.rows)],
            "value": [texts[row % len(texts)] for row in range(asked.rows)],
        }
    )
    encoder = Encoder(Codec[asked.codec.upper()], batch_bytes=asked.batch)
    parts, offset = [], 0
    for one in encoder.encode(rows, now_ms=1_700_000_000_000):
        place_batch(one.batch, 0, base_offset=offset, leader_epoch=0)
        parts.append(one.batch)
        offset += one.rows
    return b"".join(parts)


def by_columns(data: bytes, end: int) -> int:
    decoder = Decoder(("t", Partition(0)), PLAIN, first=0, end=end)
    return sum(batch.num_rows for batch in decoder.decode(data))


def by_records(data: bytes) -> int:
    records = (
        record
        for _, batch in iterate_batches(memoryview(data))
        for record in iterate_records(batch)
    )
    found = 0
    while rows := list(islice(records, _ROWS_AT_ONCE)):
        found += arrow_of(iter(rows)).num_rows
    return found


def arrow_of(records: Iterator[Record]) -> Any:  # noqa: ANN401 -- a RecordBatch
    offsets, stamps, keys, texts, _ = zip(*records, strict=True)
    count = len(offsets)
    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(texts, pa.binary()),
        pa.repeat(pa.scalar("t"), count),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.array(offsets, pa.int64()),
        pa.array([stamp * 1_000 for stamp in stamps], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PLAIN.schema())


def rows_per_cpu_s(call: Callable[[], int], rows: int) -> Figures:
    wall, began = time.monotonic(), time.process_time()
    found = call()
    spent, took = time.process_time() - began, time.monotonic() - wall
    assert found == rows, (found, rows)
    return {"cpu": round(rows / spent), "wall": round(rows / took)}


def by_client(bootstrap: str, rows: int) -> int:
    consumer = Consumer({**TUNED_CONSUMER, "bootstrap.servers": bootstrap})
    consumer.assign([TopicPartition(_TOPIC, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found = 0
    while found < rows:
        messages = consumer.consume(_ROWS_AT_ONCE, 30.0)
        assert messages, f"nothing came for 30 s after {found} of {rows} rows"
        found += arrow_of(
            Record(one.offset() or 0, one.timestamp()[1], one.key(), one.value())
            for one in messages
        ).num_rows
    consumer.close()
    return found


def one(asked: argparse.Namespace, data: bytes, bootstrap: str | None) -> Figures:
    meter = Meter([])
    ways = {"columns": partial(by_columns, data, asked.rows), "records": partial(by_records, data)}
    if bootstrap is not None:
        ways["client"] = partial(by_client, bootstrap, asked.rows)
    figures: Figures = {}
    for name, way in ways.items():
        rates = rows_per_cpu_s(way, asked.rows)
        figures[f"{name}_rows_per_cpu_s"] = rates["cpu"]
        figures[f"{name}_rows_per_s"] = rates["wall"]
    return {**figures, "other_share": meter.stop()["other_share"]}


def run(asked: argparse.Namespace) -> None:
    data = log_of(asked)
    if asked.no_client:
        runs = repeat(asked, lambda: one(asked, data, None))
    else:
        with running() as cluster:
            fill(cluster.bootstrap, _TOPIC, size=asked.size, records=asked.rows, batch=asked.batch)
            runs = repeat(asked, lambda: one(asked, data, cluster.bootstrap))
    names = [name for name in runs[0] if name not in {"other_share", "noisy"}]
    settings = {
        "size": asked.size,
        "batch": asked.batch,
        "codec": asked.codec,
        "rows": asked.rows,
        "versions": versions("confluent-kafka", "numpy", "pyarrow"),
    }
    figures = {name: middle(runs, name) for name in names}
    report("spark_decode", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
