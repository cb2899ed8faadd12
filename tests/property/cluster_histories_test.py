"""Whole clusters under drawn faults: everything committed stays, and all replicas end up equal.

A failure names its seed: `History(seed).run()` is the same history again, step by step.
"""

import hashlib
from collections import Counter

import pytest

from harness.simulation.histories import History
from harness.simulation.power import PowerHistory
from harness.simulation.sickness import ILLS, SickHistory
from harness.suite.budgets import Histories
from tidelog.kernel.ids import BrokerId

ENOUGH_TO_SEE_ALL = 20
"""Among this many histories with sick disks is every kind of sickness; the first six have it."""
ONCE_FAILED = [300_546, 400_144, 400_383, 811_516, 175, 7_007_215, 67_000_799]
"""A log that had lost its first segments was killed before it attached, and forgot it. The fourth:
who slept through an unclean election was taken for its epoch's leader when it woke. The fifth: a
log began where an unclean leader's did, was cut to nothing below, and never got what the next one
had before that. The sixth: who stood still while its only successor lost its disk showed what had
been committed before, and the witness took that for a read of what never was. The last: a leader
lost the front of its log to a power loss, up to above its high watermark. Its next life took the
new start of the log for committed: it told of committed records that it cut."""

DARK_ONCE_FAILED = [
    *(7_002_557, 7_005_549, 7_000_005),
    *(8_000_247, 8_000_817, 8_001_403),
    *(7_001_674, 7_006_458, 7_007_601),
    *(67_000_925, 67_000_667),
]
"""Replicas under `commit` whose logs began again at the leader's start never vouched for it, for
nothing asked for a flush: no follower came in sync until something was appended. The third: a
broker that was stopped before its limit of time had passed lost power while it was down. The next
three: what a killed broker had left unflushed stayed so after its start, where it heard of no topic
or nobody led. The next three: the witness counted a record's age from its first acknowledgement,
also on a replica that had just come back and taken it. The next one: a follower took the later
start of its leader's log, and its power loss undid that. It then led with records that the other
lacked. The last: as the last of `ONCE_FAILED`."""

SICK_ONCE_FAILED = [
    *(59, 5012, 5084, 5530, 5860, 2262, 3290, 62_000_055, 65_000_316, 68_200_005),
]
"""A cut whose sync found no room was tried again as if nothing had happened. One that found none
for the epochs left the high watermark above the log. A segment whose snapshot found none was not
synced by its name. A full cut that found none left no segment. Who came back without a directory
was let in before that was heard. A new log got the recovery point of one of its name that was
deleted right before a kill. A deleted log whose files could not be made left its directory. A log
that was cut below its high watermark grew while the checkpoint still told the old one. The last
two failed by the witness: it knew nothing of a leader that an unclean election deposed while it
lived. The first of these two slept, the second was alone in sync and acknowledged one record more,
before it heard that a move had been cancelled in favour of a replica without any."""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_processes_and_pipes_do_nothing_committed_is_lost(histories: Histories) -> None:
    histories.run(lambda seed: History(seed).run())


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_power_loss_takes_no_more_than_the_flush_policy_says(histories: Histories) -> None:
    """F1 to F3 of the guarantees: docs/durability.md has them in words."""
    histories.run(lambda seed: PowerHistory(seed).run())


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_disks_do_as_well_nothing_committed_is_lost(histories: Histories) -> None:
    """They are full, slow or failing now and then, under `os` and under `commit`; a leader without
    room hands over."""
    fell_ill = Counter[tuple[str, int]]()
    handed_over = 0

    def run(seed: int) -> None:
        nonlocal handed_over
        history = SickHistory(seed)
        history.run()
        fell_ill.update(history.fell_ill)
        handed_over += sum(kind == "no_room" for _, kind, _, _ in history.cluster.notes)

    if histories.run(run) >= ENOUGH_TO_SEE_ALL:
        assert fell_ill.keys() == set(ILLS)
        assert handed_over


@pytest.mark.parametrize("seed", SICK_ONCE_FAILED)
def test_a_sick_history_that_failed_once_is_well(seed: int) -> None:
    SickHistory(seed).run()


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_history_that_failed_once_is_well(seed: int) -> None:
    History(seed).run()


@pytest.mark.parametrize("seed", DARK_ONCE_FAILED)
def test_a_history_with_power_losses_that_failed_once_is_well(seed: int) -> None:
    PowerHistory(seed).run()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_history_is_the_same_each_time(seed: int) -> None:
    assert _trace(seed) == _trace(seed)


def _trace(seed: int) -> str:
    history, trace = History(seed), hashlib.sha256()

    def look(sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        trace.update(repr((history.cluster.now, sender, to, parts)).encode())
        return True

    history.cluster.look_at_message = look
    history.run()
    return trace.hexdigest()
