"""A first pipeline: `python -m tidelog.spark 127.0.0.1:9092`.

Rows become a topic, a stream copies it to another one exactly once, and a batch reads that back.
"""

import sys
import tempfile
import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark.sessions import read_stream, session

ROWS = 1_000


def first_pipeline(spark: SparkSession, bootstrap: str, checkpoint: Path) -> str:
    """Through two new topics; what came of it."""
    name = f"tides-{uuid.uuid4().hex[:8]}"
    copies = f"{name}-copies"
    to = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "CONCAT('tide ', id) AS value")
    rows.write.format("tidelog").options(**to, topic=name).mode("append").save()
    stream = read_stream(
        spark, bootstrap, checkpoint=checkpoint, subscribe=name, startingOffsets="earliest"
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("tidelog")
        .options(**to, topic=copies)
        .option("tidelog.delivery", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    committed = {"kafka.isolation.level": "read_committed", "subscribe": copies}
    found = spark.read.format("tidelog").options(**to, **committed).load()
    count, different = found.count(), found.select("value").distinct().count()
    return f"{ROWS} rows to {name}, {count} of them in {copies}, {different} different"


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tidelog.spark HOST:PORT")
    spark = session("local[2]", app="first-pipeline")
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(first_pipeline(spark, sys.argv[1], Path(folder) / "checkpoint") + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
