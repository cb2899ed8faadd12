"""Which worker runs what: whole files, so that what a file shares is made once, longest first.

A test that takes very long is given out alone. Else the run would end in waiting for its file.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from harness.suite.durations import Record, file_of, longest_first


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives out units of work in the order of the tests, which the workers have sorted."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False  # by the number of tests
        super().__init__(config, log)
        self._alone = Record.read().alone

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
        rank = {unit: at for at, unit in enumerate(longest_first({*units.values()}, record))}
        items.sort(key=lambda item: rank[units[item]])


def unit_of(nodeid: str, alone: dict[str, float]) -> str:
    return nodeid if nodeid in alone else file_of(nodeid)
