"""A stream that copies a topic on executors of their own, and meets troubles; run as a program.

The executors' Python has neither tidelog nor this module: tidelog is sent as an archive, and what
is here goes by its content, because it is the main program. Each trouble leaves a file in the
folder of marks, so that it comes once, and the test can tell that it came.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from harness.processes.cluster import until
from harness.spark.few_rows import FEW_ROWS
from harness.spark.plain import Place
from harness.spark.starts import NOT_STARTED, STARTS_MAX
from tidelog.spark.sending import RegisteredSource
from tidelog.spark.sessions import read_stream, session

BATCH = 800
"""Rows of a micro-batch, in two partitions."""
DIGITS = 6
_ROW_BYTES = 1_000
"""Enough that the sink's worker has rows in its hands long before the last ones come."""
_CONF = {
    **FEW_ROWS,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}
_PATIENCE_S = 900
"""For a busy machine, where an executor that replaces another one takes a minute to start."""
APPLICATION = "application.json"
"""In the folder of marks: the driver's JVM, and Spark's name for what runs."""


class Trouble(NamedTuple):
    """What happens in one micro-batch: in a function before the sink, or at a step of the sink."""

    what: str
    """raise, refuse, stand, or whom it kills: worker, executor, driver."""
    batch: int
    point: str = ""
    """The step; without one it is the function that meets the middle row of its partition."""
    part: int = 1

    @property
    def mark(self) -> str:
        return "-".join(map(str, self))

    @property
    def row(self) -> int:
        """In the middle of what this task reads."""
        return self.batch * BATCH + BATCH // 2 + self.part


def write_numbers(bootstrap: str, topic: str, batches: int) -> None:
    """What so many micro-batches copy."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for n in range(batches * BATCH):
        row = (b"%0*d" % (DIGITS, n)).ljust(_ROW_BYTES, b"x")
        producer.produce(topic, row, partition=n % 2)
    assert producer.flush(30) == 0


def seen(bootstrap: str, topic: str) -> list[int]:
    """The numbers that readers of committed rows find, in order."""
    given = {"subscribe": topic, "kafka_isolation_level": "read_committed"}
    return sorted(int(value[:DIGITS]) for value in Place(bootstrap).values(**given))


def happen(trouble: Trouble, marks: Path) -> None:
    """Once; but what refuses does it in each attempt, as long as its act lasts."""
    is_first = _is_first(marks / trouble.mark)
    if trouble.what == "refuse" or (is_first and trouble.what == "raise"):
        raise ValueError("a row that the function cannot take")
    if trouble.what == "stand":
        while not (marks / "stopped").exists():  # or until Spark ends this worker
            threading.Event().wait(0.05)
    elif is_first and trouble.what != "raise":
        victim, above = _victim(trouble.what, marks), _ancestors()
        os.kill(victim, signal.SIGKILL)
        if victim in above:  # this process is to get no further
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _victim(who: str, marks: Path) -> int:
    if who == "worker":
        return os.getpid()
    known = json.loads((marks / APPLICATION).read_text())
    if who == "driver":
        return int(known["jvm"])
    return _executor(known["id"])


def _executor(application: str) -> int:
    """The one that has this process's task; of a process that has none, the first one."""
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _is_executor(path, application)
    ]
    mine = [pid for pid in _ancestors() if pid in found]
    return (mine or sorted(found))[0]


def _is_executor(path: Path, application: str) -> bool:
    try:
        words = path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return application in words and any("CoarseGrainedExecutor" in one for one in words)


def _ancestors() -> list[int]:
    found, pid = [], os.getppid()
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def function(troubles: list[Trouble], marks: Path) -> Callable[[bytes], bytes]:
    """That of a user, which each row passes on its way to the sink."""
    at_row = {one.row: one for one in troubles if not one.point}

    def check(value: bytes) -> bytes:
        trouble = at_row.get(int(value[:DIGITS]))
        if trouble is not None:
            happen(trouble, marks)
        return bytes(value)

    return check


def register(spark: SparkSession, troubles: list[Trouble], marks: Path) -> None:
    """The format, whose sink tells of its steps."""
    at_step = {(one.point, one.batch, one.part): one for one in troubles if one.point}

    def reached(point: Any, batch: int, part: int) -> None:  # no class that is pickled by its name
        trouble = at_step.get((point.value, batch, part))
        if trouble is not None:
            happen(trouble, marks)

    class TroubledSource(RegisteredSource):
        def _made(self) -> Any:
            kind = type(super()._made())
            return type("Told", (kind,), {"reached": staticmethod(reached)})(self.options)

    spark.dataSource.register(TroubledSource)


class Program:
    """One session, and the query that is started in it for each act."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.marks = Path(asked["marks"])
        self.spark = session(asked["master"], app="executors", conf={**_CONF, **asked["conf"]})
        jvm: Any = self.spark._jvm
        known = {
            "jvm": jvm.java.lang.ProcessHandle.current().pid(),
            "id": self.spark.sparkContext.applicationId,
        }
        (self.marks / APPLICATION).write_text(json.dumps(known))

    def act(self, troubles: list[Trouble]) -> dict[str, Any]:
        """Whether the query ended by an error, and which numbers are seen after it."""
        said = ""
        for _ in range(STARTS_MAX):
            said = self._run(troubles)
            if NOT_STARTED not in said:
                break
        sys.stderr.write(f"{troubles}: {said}\n")
        return {"failed": bool(said), "seen": seen(self.asked["bootstrap"], self.asked["sink"])}

    def _run(self, troubles: list[Trouble]) -> str:
        """The error that ends the query, or nothing; a query that stands is stopped."""
        register(self.spark, troubles, self.marks)
        query = self._query(function(troubles, self.marks))
        for one in troubles:
            if one.what == "stand":
                self._stop(query, self.marks / one.mark)
        try:
            query.awaitTermination()
        except PySparkException as error:
            return str(error)
        return ""

    def _stop(self, query: StreamingQuery, mark: Path) -> None:
        """Once a task stands in its micro-batch, which others may come before."""
        until(lambda: mark.exists() or not query.isActive, "a task is in mid-batch", _PATIENCE_S)
        query.stop()
        (self.marks / "stopped").touch()

    def _query(self, check: Callable[[bytes], bytes]) -> StreamingQuery:
        asked = self.asked
        stream = read_stream(
            self.spark,
            asked["bootstrap"],
            checkpoint=asked["checkpoint"],
            subscribe=asked["source"],
            startingOffsets="earliest",
            maxOffsetsPerTrigger=BATCH,
        )
        return (
            stream.select(f.udf(check, "binary")("value").alias("value"), "partition")
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", asked["bootstrap"])
            .option("topic", asked["sink"])
            .option("tidelog.delivery", "exactly-once")
            .option("kafka.transaction.timeout.ms", str(_PATIENCE_S * 1_000))
            .option("checkpointLocation", asked["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )


def main(asked: dict[str, Any]) -> None:
    program = Program(asked)
    found = [program.act([Trouble(*one) for one in act]) for act in asked["acts"]]
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    program.spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
