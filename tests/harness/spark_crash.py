"""A stream of Spark that copies a topic exactly once, and is struck where it is told; a program.

Whoever reaches a step of the sink, a task or the process that finishes a micro-batch, ends the
victim by SIGKILL, and itself.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.spark.datasource import TidelogDataSource
from tidelog.spark.sessions import read_stream, session
from tidelog.spark.tasks import Point

BLOWS = "SPARK_CRASH_BLOWS"
"""Those that are dealt, as JSON."""
MARKS = "SPARK_CRASH_MARKS"
"""A folder of one file for each blow that was dealt, with the victim's pid: none is dealt twice."""
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Blow(NamedTuple):
    """Where which process dies."""

    point: str
    batch: int
    victim: str = "driver"
    """driver, executor: the JVM. worker: only the Python process that got there, which Spark
    starts anew where it was a task's."""
    partition: int = 1
    """Of the task; not the first, which has been done by then where tasks follow each other. The
    driver's own steps have -1, and 0 where it writes the micro-batch itself."""

    @property
    def mark(self) -> str:
        return "-".join(str(one) for one in self)

    def deal(self) -> None:
        """Once, by whoever comes first."""
        pid = self._victim()
        try:
            with (Path(os.environ[MARKS]) / self.mark).open("x") as mark:
                mark.write(str(pid))
        except FileExistsError:
            return
        os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _victim(self) -> int:
        """An executor is the nearest JVM above a task, the driver is the one above that, if any."""
        if self.victim == "worker":
            return os.getpid()
        machines = list(_machines())
        return machines[-1] if self.victim == "driver" else machines[0]


def _machines() -> Iterator[int]:
    """The ancestors that are Java, the nearest first."""
    pid = os.getppid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            yield pid
        pid = int(rest.split()[1])


def strike(point: Point, batch: int, partition: int) -> None:
    """In whichever process has got there."""
    for one in json.loads(os.environ[BLOWS]):
        blow = Blow(*one)
        if (blow.point, blow.batch, blow.partition) == (point.value, batch, partition):
            blow.deal()


class DyingSource(TidelogDataSource):
    """The source whose writers tell `strike` of each step."""

    reached = staticmethod(strike)


def main(asked: dict[str, Any]) -> None:
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _QUICK_START,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _QUICK_START,
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
