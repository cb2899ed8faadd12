"""The loop while one works: `-m 'not slow'` leaves out files that are recorded to take long.

They are not even imported: that alone would take longer than the tests of many other files. A file
that the command line names is run.
"""

from pathlib import Path
from typing import Final

import pytest

from harness.suite.durations import Record

LOOP: Final = "not slow"
"""The expression of markers."""
SLOW_FILE_S: Final = 2.5
"""Of wall time, as recorded in a run of everything."""


class Loop:
    """In every process that collects tests."""

    def __init__(self, config: pytest.Config) -> None:
        asked = config.getoption("markexpr") == LOOP
        names = slow_files(Record.read()) if asked else ()
        self._slow = frozenset(config.rootpath / name for name in names)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """True leaves the file out; None leaves the answer to others."""
        return True if collection_path in self._slow else None


def slow_files(record: Record) -> list[str]:
    """A new file has no record yet, and is run."""
    return [name for name, took in record.files.items() if took.wall >= SLOW_FILE_S]
