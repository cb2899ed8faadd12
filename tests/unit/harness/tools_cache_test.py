"""What is made once is whole, and what making it takes is not taken from the test's own time."""

import signal
from pathlib import Path

import pytest

from harness.suite import tools_cache, used
from harness.suite.tools_cache import ATTEMPTS, CACHE_VARIABLE, clock_stopped, is_made, made_once
from harness.suite.used import MAKING


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


def test_what_a_build_takes_is_counted_as_nobody_s_once_also_where_it_takes_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr(used, "processor_s", lambda: float(next(clock)))
    before = MAKING.seconds
    made_once("driver-1", lambda _: None)  # from 0 to 10
    assert MAKING.seconds - before == pytest.approx(10)
    made_once("driver-2", lambda _: nothing_from(made_once("jars-1", lambda _: None)))  # to 40
    assert MAKING.seconds - before == pytest.approx(30)


def nothing_from(_: Path) -> None:
    """What it needs is there."""


def test_a_build_that_fails_leaves_nothing_that_looks_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        made_once("driver-1", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["driver-1.lock"]


def test_a_download_that_fails_once_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    tries = []

    def make(folder: Path) -> None:
        tries.append([*folder.iterdir()])
        (folder / "driver").write_text("built")
        if len(tries) < ATTEMPTS:
            raise OSError("the registry does not answer")

    assert (made_once("driver-1", make) / "driver").read_text() == "built"
    assert tries == [[]] * ATTEMPTS


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_what_somebody_has_damaged_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))

    def make(folder: Path) -> None:
        (folder / "lib").mkdir()
        (folder / "lib/driver").write_text("built")

    driver = made_once("driver-1", make) / "lib/driver"
    driver.unlink() if damage == "removed" else driver.write_text("b")
    monkeypatch.setattr(tools_cache, "_seen_whole", set())  # another process
    assert not is_made("driver-1")
    assert (made_once("driver-1", make) / "lib/driver").read_text() == "built"


def test_what_a_killed_run_was_making_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "driver-1.part-abc/work").mkdir(parents=True)
    (tmp_path / "driver-2.part-abc/work").mkdir(parents=True)  # somebody is at it
    made_once("driver-1", lambda folder: (folder / "driver").touch())
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert left == ["driver-1", "driver-2.part-abc"]


def test_a_cache_that_cannot_be_written_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(OSError, match=f"file cannot hold driver-1 .* set {CACHE_VARIABLE} to"):
        made_once("driver-1", lambda _folder: None)


def test_all_checkouts_of_a_user_share_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tools_cache, "CACHE_OF_CHECKOUT", tmp_path / ".tools-cache")
    assert made_once("driver-1", lambda _folder: None) == tmp_path / "tidelog-tests/driver-1"
    (tmp_path / ".tools-cache").mkdir()
    assert not is_made("driver-1"), "a checkout that has a cache of its own uses that"
