"""What a program of Spark ends with when a signal ended what it was in the middle of."""

import signal
from collections.abc import Iterator

import pytest

from tidelog.spark.pipelines import ending
from tidelog.spark.pipelines.failures import FAILED
from tidelog.spark.pipelines.interrupts import INTERRUPTS, Interrupts


@pytest.fixture
def codes() -> Iterator[list[int]]:
    """As they are before the work, whose thread blocks signals: here it is the test's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield [FAILED]
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fails(_: ending.Ending) -> int:
    raise ConnectionError("the JVM has gone")


def test_an_error_of_a_program_that_is_being_ended_is_the_signal_s_code(
    codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(INTERRUPTS, "times", 1)
    monkeypatch.setattr(INTERRUPTS, "code", 130)
    ending._work(fails, ending.Ending(), codes)
    assert codes[-1] == 130


def test_an_error_of_a_program_that_nobody_ends_is_its_own(codes: list[int]) -> None:
    assert Interrupts().times == INTERRUPTS.times == 0
    with pytest.raises(ConnectionError):
        ending._work(fails, ending.Ending(), codes)
    assert codes == [FAILED]
