"""A Spark session that is set up for the data source, and a stream with its checkpoint."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession

from tidelog.spark.sending import RegisteredSource

_CONF: Mapping[str, str] = {
    "spark.log.level": "ERROR",
    "spark.speculation": "false",  # an exactly-once task that loses has worked for nothing
    "spark.sql.adaptive.streaming.stateless.enabled": "false",  # the same tasks when done again
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def session(
    master: str | None = None, *, app: str = "tidelog", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that knows format `tidelog`; what `conf` says wins over what is set here. Without
    `master` a program that spark-submit has started runs where spark-submit was told to, and any
    other one on this machine.

    The format is registered although Spark finds it by itself: what Spark finds by itself is run
    with the Python of the driver's environment and without --py-files, also on executors.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    where = master or _submitted_to() or "local[*]"
    chosen = {**_CONF, **(_LOCAL if where.startswith("local") else {}), **(conf or {})}
    builder = SparkSession.builder.master(where).appName(app)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(RegisteredSource)
    return spark


def _submitted_to() -> str | None:
    """The master that spark-submit was given, in a program that it has started."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    found: str | None = SparkConf().get("spark.master")  # asks the JVM, which runs already
    return found


def read_stream(
    spark: SparkSession,
    bootstrap: str,
    *,
    checkpoint: str | Path,
    **options: Any,  # noqa: ANN401 -- texts and numbers
) -> DataFrame:
    """A stream that remembers beside its checkpoint where it began; the options are the source's,
    with two underscores for a dot."""
    given = {name.replace("__", "."): _text(value) for name, value in options.items()}
    given.setdefault("tidelog.initialOffsets", f"{checkpoint}/tidelog-initial.json")
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**given).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
