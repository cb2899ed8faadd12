"""Whether a long exactly-once stream of Spark keeps its memory and its number of descriptors.

Looks at the driver's JVM and at its Python workers after a fifth of the micro-batches, when all is
warm, and then at each further fifth. `heap_mb` is what the JVM holds after a collection of its
garbage, `workers_mb` what Python processes of Spark have of their own, `*_fds` open descriptors.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from clusters import environment, running
from measuring import MB, Arguments, Figures, report, tree, versions
from tidelog.spark.sessions import read_stream, session
from workloads import make_topic

_SOURCE, _SINK = "spark-flat", "spark-flat-out"
_LOOK_S = 0.05
_CONF = {
    "spark.driver.memory": "512m",
    "spark.sql.streaming.minBatchesToRetain": "20",  # Spark's default of 100 is all that there are
}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["spark_flat.py", "spark_flat.py --batches 100"], runs=1)
    asked.add_argument("--batches", type=int, default=500, help="micro-batches (500)")
    asked.add_argument("--rows", type=int, default=200, help="of a micro-batch (200)")
    return asked


def look(spark: SparkSession) -> Figures:
    """Now."""
    jvm: Any = spark._jvm  # noqa: SLF001 -- Spark has no other way to it
    for _ in range(2):
        jvm.java.lang.System.gc()
    gc.collect()
    runtime = jvm.java.lang.Runtime.getRuntime()
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    workers = tree([java]) - {java}
    return {
        "heap_mb": round((runtime.totalMemory() - runtime.freeMemory()) / MB, 1),
        "jvm_rss_mb": round(_status(java, "VmRSS") / MB, 1),
        "jvm_fds": _descriptors(java),
        "workers": len(workers),
        "workers_mb": round(sum(_status(pid, "RssAnon") for pid in workers) / MB, 1),
        "workers_fds": sum(_descriptors(pid) for pid in workers),
    }


def _status(pid: int, name: str) -> int:
    """Bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(one.split()[1]) * 1024 for one in lines if one.startswith(f"{name}:")), 0)


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 -- names are enough
    except OSError:
        return 0


def copying(
    spark: SparkSession, bootstrap: str, asked: argparse.Namespace, folder: str
) -> StreamingQuery:
    """The stream."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": asked.rows}
    rows = read_stream(spark, bootstrap, checkpoint=folder, subscribe=_SOURCE, **options)
    return (
        rows.select("key", "value")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", _SINK)
        .option("tidelog.delivery", "exactly-once")
        .option("checkpointLocation", folder)
        .start()
    )


def wait_for(query: StreamingQuery, batch: int) -> None:
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        if not query.isActive:
            raise SystemExit(f"the stream has ended: {query.exception()}")
        time.sleep(_LOOK_S)


def run(asked: argparse.Namespace) -> None:
    os.environ.update(environment(), SPARK_LOCAL_IP="127.0.0.1")
    with running(brokers=1) as cluster, tempfile.TemporaryDirectory() as folder:
        for name in (_SOURCE, _SINK):
            make_topic(cluster.bootstrap, name, 2)
        spark = session("local[2]", app="spark_flat", conf=_CONF)
        values = "cast(id as string) as key, rpad(cast(id as string), 100, 'x') as value"
        rows = spark.range(asked.rows * asked.batches).selectExpr(*values.split(", ", 1))
        writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", cluster.bootstrap)
        writer.option("topic", _SOURCE).mode("append").save()
        query = copying(spark, cluster.bootstrap, asked, folder)
        looks = {}
        for part in (1, 2, 3, 4, 5):
            batch = asked.batches * part // 5 - 2 * (part == 5)
            wait_for(query, batch)
            looks[str(batch)] = look(spark)
            print(batch, looks[str(batch)], file=sys.stderr, flush=True)
        query.stop()
        spark.stop()
    first, *_, last = looks.values()
    settings = {"batches": asked.batches, "rows": asked.rows, "versions": versions("pyspark")}
    found = {name: [first[name], last[name]] for name in first}
    report("spark_flat", settings, {**found, "looks": looks}, [])


if __name__ == "__main__":
    run(parser().parse_args())
