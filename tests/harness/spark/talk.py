"""What a program of Spark and the test that has started it say to each other: a line of JSON each.

It imports little, because each Python worker of Spark imports it.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

ANSWER: Final = "ANSWER "
"""Begins a line that is one: whatever else is printed is none."""
FOLDER: Final = "SPARK_PROGRAM_FOLDER"
"""Names the program's folder, also to the processes that it starts."""

SCRATCH: Final = "spark"
"""The folder in that one that is Spark's."""


def requests() -> Iterator[dict[str, Any]]:
    """Until the test has no more."""
    for line in sys.stdin:
        yield json.loads(line)


def answer(said: dict[str, Any]) -> None:
    """To the last request."""
    sys.stdout.write(f"{ANSWER}{json.dumps(said)}\n")
    sys.stdout.flush()
