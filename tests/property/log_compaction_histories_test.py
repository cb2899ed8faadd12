"""Random lives of a compacted log, killed at any step of a compaction: what each key holds is what
a model says that remembers everything.
"""

import pytest

from harness.disks.mortal_disk import after_calls
from harness.logs.batches import flush
from harness.logs.compaction import compact
from harness.logs.compaction_lives import Life
from harness.suite.budgets import Histories

DRAWS = 4
SEED_OF_A_PASS = 5
"""Its draws give enough memory for all keys, and large segments."""
MORE_STEPS_THAN_ANY_PASS = 500

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3_600)
def test_each_key_holds_what_was_written_last_whatever_dies_on_the_way(
    histories: Histories,
) -> None:
    histories.run(lambda seed: Life(seed).run())


@pytest.mark.timeout(3_600)
def test_each_key_holds_what_was_written_last_after_a_kill_at_each_point(
    histories: Histories,
) -> None:
    """Each history dies at all five points."""
    histories.run(lambda seed: Life(seed).run_through_all_points())


def _written_life() -> Life:
    """All of its segments may be compacted, several into one."""
    life = Life(1)
    for _ in range(30):
        life.write()
    for producer in list(life.open_since):
        life.end_transaction(producer, commit=True)
    life.log.roll(life.now_ms)
    flush(life.log)
    life.rng.seed(SEED_OF_A_PASS)
    return life


@pytest.mark.parametrize("power", [False, True])
def test_a_pass_may_end_before_each_of_its_steps(*, power: bool) -> None:
    """Between any two of its system calls; and the next pass makes good what it left."""
    for step in range(MORE_STEPS_THAN_ANY_PASS):
        survived = False
        for draw in range(DRAWS if power else 1):
            life = _written_life()
            survived = life.clean_until(after_calls(step))
            if not survived:
                life.rng.seed(draw)
                life.die(power=power)
                life.check()
            compact(life.logs, life.log, life.now_ms, high_watermark=life.stable())
            life.check()
        if survived:
            assert step > 50, "a pass takes more calls than that"
            assert len(life.log.segments) < 8, "some became one"
            return
    pytest.fail("no pass came to its end")
