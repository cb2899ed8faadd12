"""One JVM of Spark for the programs of many tests; run as a program itself.

It takes a request a line. A module's `answers` gets a session of its own, with settings and formats
of its own, in the one context that there is. A script makes its own context, in the same JVM.
"""

import importlib
import io
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from harness.spark.few_rows import FEW_ROWS
from harness.spark.forks import forking
from harness.spark.talk import SCRATCH, answer, requests
from tidelog.spark.sending import RegisteredSource
from tidelog.spark.sessions import session

CONF: Final = {
    **FEW_ROWS,
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "pyspark.daemon",  # forks of ours
    # Spark kills the Python of a task that does not end within 2 s after it was cancelled. On a
    # busy machine that may be before it has aborted its transaction.
    "spark.python.task.killTimeout": "60s",
}
MASTER: Final = "local[2,2]"
"""Each task is tried twice before its query fails."""


class Driver:
    """The session that all others come from, as long as there is one."""

    def __init__(self, jars: str) -> None:
        self._conf = {**CONF, **({"spark.jars": jars} if jars else {})}
        self._first: SparkSession | None = None

    def said(self, asked: dict[str, Any]) -> Any:
        """By a module's function, or by a script as it prints it."""
        if "script" in asked:
            return self._printed(asked["script"])
        module: Any = importlib.import_module(asked["module"])
        with redirect_stdout(sys.stderr):
            return module.answers(self._new(), asked["asked"])

    def _new(self) -> SparkSession:
        if self._first is None:
            self._first = session(MASTER, app="tests", conf=self._conf)
        spark = self._first.newSession()
        spark.dataSource.register(RegisteredSource)
        # Makes it the active one: a write looks up its format there.
        spark.createDataFrame([], "id int")
        return spark

    def _printed(self, script: str) -> str:
        """With the settings that a program of its own would have."""
        if self._first is None:
            self._new()  # starts the JVM with the jars that others need
        self.stop()
        jvm: Any = SparkContext._jvm
        for name in self._conf:
            jvm.java.lang.System.clearProperty(name)
        out = io.StringIO()
        with redirect_stdout(out):
            runpy.run_path(script, run_name="__main__")
        return out.getvalue()

    def stop(self) -> None:
        if self._first is not None:
            self._first.stop()
            self._first = None


def main(jars: str) -> None:
    with forking(Path(SCRATCH).resolve()):
        driver = Driver(jars)
        for asked in requests():
            try:
                answer({"said": driver.said(asked)})
            except Exception:  # noqa: BLE001 -- the test is told of it, and the next one goes on
                answer({"error": traceback.format_exc()})
        driver.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
