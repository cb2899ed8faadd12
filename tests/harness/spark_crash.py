"""A stream of Spark that copies a topic exactly once, and is killed where it is told; a program.

The JVM, and with it the driver and every worker, is ended by SIGKILL from within a task, or from
within the process that finishes a micro-batch; then whoever does it ends itself.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tidelog.spark.datasource import TidelogDataSource
from tidelog.spark.sessions import read_stream, session
from tidelog.spark.tasks import Point

DIES_AT = "SPARK_CRASH_DIES_AT"
"""As "mid:1": the point, and the micro-batch."""
VICTIM = "SPARK_CRASH_VICTIM"
"""jvm: that of the driver, or of the executor where that is another. worker: only the Python
process of the task, which Spark starts anew."""
MARK = "SPARK_CRASH_MARK"
"""A file that is made by who has struck: nobody strikes twice."""


def strike(point: Point, batch: int, partition: int) -> None:
    """In whichever process has got there."""
    wanted, _, number = os.environ.get(DIES_AT, "").partition(":")
    if point.value != wanted or batch != int(number) or partition == 0:
        return
    mark = Path(os.environ[MARK])
    if mark.exists():
        return
    mark.write_text(point.value)
    if os.environ[VICTIM] == "jvm":
        os.kill(_jvm(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _jvm() -> int:
    """The nearest ancestor that is Java."""
    pid = os.getppid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise AssertionError("no JVM above this process")


class DyingSource(TidelogDataSource):
    """The source whose writers tell `strike` of each step."""

    reached = staticmethod(strike)


def main(asked: dict[str, Any]) -> None:
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = session(asked["master"], app="crash", conf=conf)
    spark.dataSource.register(DyingSource)
    stream = read_stream(
        spark,
        asked["bootstrap"],
        checkpoint=asked["checkpoint"],
        subscribe=asked["source"],
        startingOffsets="earliest",
        maxOffsetsPerTrigger=asked["batch"],
    )
    query = (
        stream.select("key", "value", "partition")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", asked["bootstrap"])
        .option("topic", asked["sink"])
        .option("tidelog.delivery", asked["delivery"])
        .option("checkpointLocation", asked["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
