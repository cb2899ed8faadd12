"""Rows of files as columns that are written: Parquet, CSV or JSON."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.spark.pipelines.failures import UsageError

_ROWS_AT_ONCE = 10_000


def frame_of(
    spark: SparkSession, path: str, form: str, value: str | None, key: str | None
) -> DataFrame:
    """A column each for values and keys; without one for values a value is the row as JSON."""
    reader = spark.read.format(form)
    rows = (reader.option("header", "true") if form == "csv" else reader).load(path)
    for name in (value, key):
        if name is not None and name not in rows.columns:
            raise UsageError(f"--input has no column {name!r}: it has {', '.join(rows.columns)}")
    whole = f.to_json(f.struct("*")) if value is None else f.col(value)
    columns = [whole.cast("string").cast("binary").alias("value")]
    if key is not None:
        columns.append(f.col(key).cast("string").cast("binary").alias("key"))
    return rows.select(*columns)


def batches_of(rows: Iterable[Any]) -> Iterator[Any]:
    """Rows of a data frame as Arrow's batches."""
    left = iter(rows)
    while some := list(islice(left, _ROWS_AT_ONCE)):
        columns = {"value": [row.value for row in some]}
        if "key" in some[0]:
            columns["key"] = [row.key for row in some]
        arrays = {name: pa.array(column, pa.binary()) for name, column in columns.items()}
        yield pa.RecordBatch.from_pydict(arrays)
