"""A first pipeline: rows become a topic, a stream copies it, and a batch reads the copy."""

import sys
import tempfile
import uuid
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark.pipelines.ending import Ending, run_to_the_end
from tidelog.spark.pipelines.failures import DONE
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import note
from tidelog.spark.pipelines.running import told
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


def run(bootstrap: str) -> int:
    """The exit code."""
    return run_to_the_end(partial(_run, bootstrap))


def _run(bootstrap: str, ending: Ending) -> int:
    try:
        spark = ending.started(lambda: session("local[2]", app="first-pipeline"))
        with tempfile.TemporaryDirectory() as folder:
            said = first_pipeline(spark, bootstrap, Path(folder) / "checkpoint")
        sys.stdout.write(said + "\n")
    except Exception as error:  # noqa: BLE001 -- the edge: everything becomes a sentence and a code
        if INTERRUPTS.asked:
            return INTERRUPTS.code  # whatever was broken off has failed
        sentence, code = told(error)
        note(f"error: {' '.join(sentence.split())}")
        return code
    finally:
        ending.stop()
    return DONE
