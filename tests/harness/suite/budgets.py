"""How long drawn histories may run: a budget of processor time for each test file.

A test with the fixture `histories` runs one history after the other, from seed 0 on, until its
share of its file's budget is used up. A slow machine runs fewer; no test fails for that, and
the number that ran is printed at the end of the run.

`--nightly` multiplies the budgets and starts at a random seed. A failure names its seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from time import process_time
from typing import Any, Final

import pytest

SECONDS: Final[Mapping[str, float]] = {
    "cluster_histories_test.py": 12,
    "consumer_groups_test.py": 1,
    "crash_images_test.py": 1.5,
    "group_histories_test.py": 2.5,
    "groups_any_client_test.py": 0.5,
    "groups_any_log_test.py": 1,
    "groups_compacted_load_test.py": 0.5,
    "groups_deleted_topics_test.py": 1,
    "ledger_histories_test.py": 1,
    "log_compaction_histories_test.py": 8,
    "log_compaction_interrupted_test.py": 2,
    "log_histories_test.py": 2,
    "log_index_flips_test.py": 1.5,
    "log_transactions_histories_test.py": 2.5,
    "log_verify_test.py": 3,
    "mixed_groups_test.py": 1,
    "produce_again_test.py": 1.5,
    "recreated_histories_test.py": 1.5,
    "spark_segments_histories_test.py": 1,
    "spark_sink_histories_test.py": 3,
    "transaction_cluster_histories_test.py": 6,
    "transactions_any_log_test.py": 0.5,
    "transactions_gate_test.py": 1,
    "transactions_link_histories_test.py": 0.5,
}
"""Of one run, in seconds of a processor; the tests of a file share them equally."""
NIGHTLY_TIMES: Final = 200
_PROPERTY: Final = "histories"


@dataclass(frozen=True)
class Histories:
    """What the fixture `histories` gives a test."""

    seconds: float
    first: int
    tell: Callable[[str, object], None]

    def run(self, history: Callable[[int], object]) -> int:
        """Run one history for each seed, and at least one; return how many."""
        began, seed = process_time(), self.first
        while seed == self.first or process_time() - began < self.seconds:
            try:
                history(seed)
            except Exception as failure:
                raise AssertionError(f"the history of seed {seed} fails: {failure}") from failure
            seed += 1
        self.tell(_PROPERTY, [seed - self.first, process_time() - began])
        return seed - self.first


@pytest.fixture
def histories(
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    *,
    nightly: bool,
) -> Histories:
    mine = request.node.path
    sharing = sum(
        one.path == mine and _PROPERTY in getattr(one, "fixturenames", ())
        for one in request.session.items
    )
    seconds = SECONDS[mine.name] / sharing
    if nightly:
        return Histories(seconds * NIGHTLY_TIMES, Random().randrange(1 << 40), record_property)
    return Histories(seconds, 0, record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many histories each file ran."""
    found: dict[str, list[float]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == _PROPERTY:
                count, seconds = found.setdefault(report.fspath, [0, 0.0])
                found[report.fspath] = [count + value[0], seconds + value[1]]
    if found:
        terminalreporter.section("drawn histories")
    for file, (count, seconds) in sorted(found.items()):
        terminalreporter.line(f"{count:6.0f} in {seconds:5.1f} s of processor time: {file}")
