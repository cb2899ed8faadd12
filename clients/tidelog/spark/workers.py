"""What is to be done once in a Python worker of Spark, which does task after task."""

import gc
import os
from collections.abc import Mapping

_settled: set[int] = set()


def settle(environ: Mapping[str, str] = os.environ) -> None:
    """Called when a task's work is done, or a writer is made: all is imported by then.

    A worker that is used again collects garbage after each task, and that looks through all
    modules and what they hold: longer than a small task's own work. From here on it looks only
    at what is new. Keyed by the process: each is forked from one that has done nothing yet.
    """
    if "SPARK_REUSE_WORKER" not in environ or os.getpid() in _settled:
        return
    _settled.add(os.getpid())
    gc.collect()
    gc.freeze()
