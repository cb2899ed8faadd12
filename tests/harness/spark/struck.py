"""A pipeline whose sink strikes at a chosen moment: it signals or kills the program that it works
for. Run as a program: `python -m harness.spark.struck NAME OPTIONS`.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelog.spark import sessions
from tidelog.spark.datasource import BatchWriter, StreamReader, StreamWriter, TidelogDataSource
from tidelog.spark.options import Mode, sink_options, source_options
from tidelog.spark.pipelines.running import run

MOMENT, DEATH, MARK, DRIVER = "STRUCK_MOMENT", "STRUCK_DEATH", "STRUCK_MARK", "STRUCK_DRIVER"
MOMENTS = ("middle", "written", "committed")
"""A task has a part of its rows, has done all it does, the sink has done all it does: of these
Spark knows nothing yet."""
DEATHS = ("SIGINT", "SIGTERM", "jvm", "python")
_STALL_S = 120
_SLOW_S = 1
_PIECES_BEFORE = 2
_ROWS = 50


def strike(moment: str) -> None:
    """Once, by whoever gets there first; the rest of the micro-batch never comes."""
    if os.environ[MOMENT] == moment and _is_first():
        _deal()
        Event().wait(_STALL_S)


def _is_first() -> bool:
    """Of all processes of all runs; the mark says in which of them it was."""
    try:
        with Path(os.environ[MARK]).open("x") as file:
            file.write(os.environ[DRIVER])
    except FileExistsError:
        return False
    return True


def _deal() -> None:
    driver, death = int(os.environ[DRIVER]), os.environ[DEATH]
    match death:
        case "jvm":
            os.kill(_machine(), signal.SIGKILL)
        case "python":
            os.kill(driver, signal.SIGKILL)
        case name:
            os.kill(driver, signal.Signals[name])


def _machine() -> int:
    """The JVM that this worker or driver belongs to."""
    pid = os.getppid()
    while True:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])


def struck(batches: Iterable[Any]) -> Iterator[Any]:
    """Small batches of rows, slowly once it has struck: so a program ends in the middle of them."""
    pieces = (one.slice(at, _ROWS) for one in batches for at in range(0, one.num_rows, _ROWS))
    for number, piece in enumerate(pieces):
        if number >= _PIECES_BEFORE and os.environ[MOMENT] == "middle":
            if _is_first():
                _deal()
            if Path(os.environ[MARK]).read_text() == os.environ[DRIVER]:
                Event().wait(_SLOW_S)
        yield piece


class StruckReader(StreamReader):
    """What it has not given yet is not on its way to the sink: if the program ends, the sink meets
    the end of its input before the end of the rows."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return struck(super().read(partition))


class StruckBatch(BatchWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        done = super().write(struck(iterator))
        strike("written")
        return done

    def commit(self, messages: list[Any]) -> None:
        super().commit(messages)
        strike("committed")


class StruckStream(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        done = super().write(iterator)
        strike("written")
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 -- Spark's name
        super().commit(messages, batchId)
        if batchId:
            strike("committed")


class StruckSource(TidelogDataSource):
    """The source whose writers strike."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's
        return StruckReader(source_options(self.options, Mode.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001 -- Spark's
        options = sink_options(self.options, Mode.BATCH)
        return StruckBatch(options, type(self).reached)

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,  # noqa: ARG002 -- Spark's
        overwrite: bool,  # noqa: ARG002, FBT001 -- Spark's
    ) -> DataSourceStreamArrowWriter:
        return StruckStream(sink_options(self.options, Mode.STREAM), type(self).reached)


def main() -> None:
    os.environ[DRIVER] = str(os.getpid())
    vars(sessions)["RegisteredSource"] = StruckSource  # what a session registers
    sys.exit(run(sys.argv[1], sys.argv[2:]))


if __name__ == "__main__":
    main()
