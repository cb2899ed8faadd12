"""Random lives of a compacted log to which something else is done during a pass: no record that was
cut off comes back, no last value is lost, and none of it is taken for damage.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.interrupted_lives import Life

HISTORIES = 1_000
PARTS = 5
EVENTS = 10

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", range(PARTS))
def test_a_log_that_changes_during_a_pass_keeps_each_last_value(part: int) -> None:
    done: set[str] = set()
    for seed in range(part, HISTORIES, PARTS):
        with _told(seed):
            life = Life(seed)
            life.run()
            done |= life.done
    assert len(done) == EVENTS, "each kind of event came during some pass"


@contextmanager
def _told(seed: int) -> Iterator[None]:
    """For whoever repeats it."""
    try:
        yield
    except BaseException:
        print(f"seed {seed}")  # noqa: T201 -- as said
        raise
