"""What is made once is whole, and what making it takes is not taken from the test's own time."""

import signal
from pathlib import Path

import pytest

from harness.suite.tools_cache import CACHE_VARIABLE, clock_stopped, made_once


def test_a_build_does_not_run_into_the_time_limit_of_its_test() -> None:
    before, _ = signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        with clock_stopped():
            assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)


def test_a_test_without_a_time_limit_has_none_after_a_build() -> None:
    before, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with clock_stopped():
            pass
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)


def test_a_folder_is_made_once_and_outside_of_the_tests_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    made = []

    def make(folder: Path) -> None:
        made.append(signal.getitimer(signal.ITIMER_REAL)[0])
        (folder / "driver").write_text("built")

    for _ in range(2):
        assert (made_once("driver-1", make) / "driver").read_text() == "built"
    assert made == [0]


def test_a_build_that_fails_leaves_nothing_that_looks_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        made_once("driver-1", fail)
    assert not (tmp_path / "driver-1").exists()
