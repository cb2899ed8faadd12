"""Random lives of a log with transactions, which is killed, cut and without power: its producers,
last stable offset, aborted transactions and readers are what a model says that counts anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.transaction_lives import Life

HISTORIES = 1_500
PARTS = 10

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_known_of_transactions_is_what_the_batches_say(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        with _told(seed):
            Life(seed).run()


@contextmanager
def _told(seed: int) -> Iterator[None]:
    """For whoever repeats it."""
    try:
        yield
    except BaseException:
        print(f"seed {seed}")  # noqa: T201 -- as said
        raise
