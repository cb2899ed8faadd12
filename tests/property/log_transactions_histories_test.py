"""Random lives of a log with transactions, which is killed, cut and without power: its producers,
last stable offset, aborted transactions and readers are what a model says that counts anew.
"""

import pytest

from harness.logs.transaction_lives import Life
from harness.suite.budgets import Histories

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3_600)
def test_what_is_known_of_transactions_is_what_the_batches_say(histories: Histories) -> None:
    histories.run(lambda seed: Life(seed).run())
