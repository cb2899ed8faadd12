"""Random lives of a compacted log to which something else is done during a pass: no record that was
cut off comes back, no last value is lost, and none of it is taken for damage.
"""

import pytest

from harness.logs.interrupted_lives import Life
from harness.suite.budgets import Histories

ENOUGH_TO_SEE_ALL = 200
"""Histories among which each kind of event comes during some pass."""
EVENTS = 10

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3_600)
def test_a_log_that_changes_during_a_pass_keeps_each_last_value(histories: Histories) -> None:
    done: set[str] = set()

    def run(seed: int) -> None:
        life = Life(seed)
        life.run()
        done.update(life.done)

    if histories.run(run) >= ENOUGH_TO_SEE_ALL:
        assert len(done) == EVENTS, "each kind of event came during some pass"
