"""Which worker runs what: whole files, so that what a file shares is made once, longest first.

A test that takes very long is given out alone. Else the run would end in waiting for its file.
Files that share a JVM go together, whatever their tests take.
"""

from collections.abc import Mapping
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from harness.suite.durations import Record, file_of, longest_first

TOGETHER: Final[Mapping[str, frozenset[str]]] = {
    "shared_spark": frozenset(
        (
            "tests/cluster/spark_counts_test.py",
            "tests/cluster/spark_crash_test.py",
            "tests/cluster/spark_failures_test.py",
            "tests/cluster/spark_fidelity_test.py",
            "tests/cluster/spark_matrix_test.py",
            "tests/cluster/spark_page_test.py",
            "tests/cluster/spark_pipeline_deaths_test.py",
            "tests/cluster/spark_pipelines_test.py",
            "tests/cluster/spark_program_test.py",
            "tests/property/spark_fingerprints_test.py",
        )
    ),
    "shared_kafka": frozenset(
        (
            "tests/cluster/spark_exactly_once_test.py",
            "tests/cluster/spark_sink_permits_test.py",
            "tests/cluster/spark_times_test.py",
        )
    ),
}
"""By a fixture that costs more than most of what tests do with it: the files that take it."""


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives out units of work in the order of the tests, which the workers have sorted."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False  # by the number of tests
        super().__init__(config, log)
        self._alone = Record.read().alone

    def remove_node(self, node: WorkerController) -> str | None:
        """Of a worker that has died: the test that it ran, which must not kill the next worker."""
        units: list[dict[str, bool]] = [*self.assigned_work.get(node, {}).values()]
        places = [(unit, test) for unit in units for test, ended in unit.items() if not ended]
        if not places:
            super().remove_node(node)
            return None
        unit, crashed = places[0]
        unit[crashed] = True
        super().remove_node(node)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """A worker begins a test when it knows the next one, or that there is none. xdist gives a
        worker in place of a dead one a single unit: with one test in it both wait for ever."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self._alone)


class Sharing:
    """In the process that has the workers: shares `--dist=loadfile` out in that way."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LongestFirst | None:
        return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None


class Sorting:
    """In each worker: the same order, by what is recorded."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        record = Record.read()
        units = {item: unit_of(item.nodeid, record.alone) for item in items}
        ordered = longest_first({*units.values()}, record, TOGETHER)
        rank = {unit: at for at, unit in enumerate(ordered)}
        items.sort(key=lambda item: rank[units[item]])


def unit_of(nodeid: str, alone: dict[str, float]) -> str:
    file = file_of(nodeid)
    for shared, files in TOGETHER.items():
        if file in files:
            return shared
    return nodeid if nodeid in alone else file
