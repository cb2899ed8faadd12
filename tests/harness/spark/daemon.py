"""Spark's daemon of Python workers, which has imported what the workers need before it forks them.

Each new worker of Spark's own daemon imports pyarrow and tidelog again: half a second of a
processor, which is most of what a test of Spark costs. The setting is
`spark.python.daemon.module`.
"""

import gc
import importlib
import sys

from pyspark.daemon import manager

LIGHT = frozenset({"pyspark.sql.worker.lookup_data_sources"})
"""Workers that neither read nor write rows."""


def run(*modules: str) -> None:
    """Fork workers until the JVM ends; they find these modules imported, too."""
    workers = sys.argv[1]
    importlib.import_module(workers)
    if workers not in LIGHT:
        for one in ("pyarrow", "tidelog.spark.datasource", *modules):
            importlib.import_module(one)
    # Workers collect garbage after each thing that they do: this is none.
    gc.freeze()
    manager()


if __name__ == "__main__":
    run()
