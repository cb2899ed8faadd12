"""A run that has not done all that it collected fails, whatever a second try says of its tests.

These are runs of small projects with the settings and plugins of this suite.
"""

import os
import signal
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from harness.suite.need import ABILITIES, absent
from harness.suite.runs import run_apart
from harness.suite.second_try import EVIDENCE, has_passed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FAILS_FIRST = """
    import os
    from pathlib import Path

    import pytest

    def test_odd():
        been = Path(__file__).with_suffix(".been")
        was_here = been.exists()
        been.touch()
        if not was_here:
            FIRST
        THEN
"""
KILLS_ITS_WORKER = """
    import os

    def test_kills():
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(9)

    def test_other():
        pass
"""


def fails_first(first: str = 'assert False, "the first time"', then: str = "pass") -> str:
    return FAILS_FIRST.replace("FIRST", first).replace("THEN", then)


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    settings = (
        "[pytest]\naddopts = --import-mode=importlib -p no:asyncio\nmarkers = slow: takes long\n"
    )
    (tmp_path / "pytest.ini").write_text(settings)
    return Run(tmp_path)


class Run:
    """One run of test files, which are given by their paths."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            path = self.folder / f"tests/{name.replace('__', '/')}_test.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        plugin = ["-p", "conftest", "-p", "no:cacheprovider"]
        return run_apart(self.folder, *plugin, "--second-try", *options, "tests")


PASSES = "def test_sound(): pass"
IN_A_WORKER = ("-n", "1", "--dist=loadfile")


def test_a_run_that_ends_at_its_first_failure_has_not_passed(run: Run) -> None:
    found = run("-n", "0", "-x", cluster__a=fails_first(), unit__b="def test_bad(): assert 0")
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "1 collected tests were never run: tests/unit/b_test.py::test_bad" in found.stdout
    assert "no second try: 1 collected tests were never run" in found.stdout


def test_a_test_that_kills_its_worker_kills_one_and_is_told(run: Run) -> None:
    found = run(*IN_A_WORKER, cluster__a=KILLS_ITS_WORKER, unit__b=PASSES)
    assert found.stdout.count("node down: Not properly terminated") == 1
    assert "1 failed, 2 passed" in found.stdout
    assert "passed at the second try: tests/cluster/a_test.py::test_kills" in found.stdout
    assert found.returncode == 0, found.stdout


def test_a_worker_that_dies_after_its_last_test_fails_the_run(run: Run) -> None:
    dies = """
        import os

        def test_last(request):
            class Dies:
                def pytest_sessionfinish(self):
                    os._exit(3)

            request.config.pluginmanager.register(Dies())
    """
    found = run(*IN_A_WORKER, unit__a=dies)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "workers that died while they ran no test: " in found.stdout


def test_what_goes_wrong_at_the_end_of_a_worker_fails_the_run(run: Run) -> None:
    raises = """
        def test_last(request):
            class Raises:
                def pytest_sessionfinish(self):
                    raise ValueError("too late")

            request.config.pluginmanager.register(Raises())
    """
    found = run(*IN_A_WORKER, unit__a=raises)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "a worker could not end: ValueError('too late')" in found.stdout


def test_a_second_try_that_skips_has_not_passed(run: Run) -> None:
    found = run("-n", "0", cluster__a=fails_first(then='pytest.skip("a port is taken")'))
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "failed twice: tests/cluster/a_test.py::test_odd" in found.stdout


def test_a_second_try_does_not_wait_for_what_its_test_has_left(run: Run) -> None:
    leaves = "left = os.fork() or __import__('signal').pause(); Path('left').write_text(str(left))"
    found = run("-n", "0", cluster__a=fails_first(then=leaves))
    left = int((run.folder / "left").read_text())
    assert Path(f"/proc/{left}").exists()
    os.kill(left, signal.SIGKILL)
    assert found.returncode == 0, found.stdout


def test_no_second_try_forgives_a_file_that_cannot_be_collected(run: Run) -> None:
    for workers in (("-n", "0"), IN_A_WORKER):
        found = run(*workers, cluster__a=fails_first(), unit__b="import nothing_like_this")
        assert found.returncode not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}, found.stdout
        assert "passed at the second try:" not in found.stdout


GROWS = """
    import pytest

    from harness.suite.durations import FileTime, Record

    FILES = ("unit/b", "unit/c", "unit/d", "cluster/a")
    KNOWN = {f"tests/{name}_test.py": FileTime(5, 5) for name in FILES}
    Record.read = lambda: Record(KNOWN)

    @pytest.fixture(autouse=True)
    def _used(request):
        from harness.suite.durations import PROCESSOR
        used = 100.0 if "a_test" in request.node.nodeid else 5.0
        request.node.user_properties.append((PROCESSOR, used))
"""


def test_no_second_try_forgives_a_file_that_takes_much_longer(run: Run) -> None:
    (run.folder / "grows.py").write_text(dedent(GROWS))
    sound = {f"unit__{name}": PASSES for name in "bcd"}
    found = run("-n", "0", "-p", "grows", cluster__a=fails_first(), **sound)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "no second try: tests/cluster/a_test.py: 100.0 s of processor time" in found.stdout


def test_evidence_that_is_no_text_is_written_all_the_same(run: Run) -> None:
    found = run("-n", "0", cluster__a=fails_first(r'assert False, "odd: \ud800"'))
    assert found.returncode == 0, found.stdout
    assert rb"odd: \ud800" in (run.folder / EVIDENCE).read_bytes()


@pytest.mark.parametrize(
    ("last", "passed"),
    [
        ("1 passed in 0.01s", True),
        ("1 passed, 1 warning in 2.00s", True),
        ("1 skipped in 0.01s", False),
        ("1 xfailed in 0.01s", False),
        ("no tests ran in 0.01s", False),
        ("", False),
    ],
)
def test_only_a_test_that_ran_has_passed(last: str, *, passed: bool) -> None:
    assert has_passed(f".   [100%]\n{last}\n") == passed


def test_a_mistyped_name_of_a_required_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_REQUIRE", ",".join(["sh", "jaav", *ABILITIES]))
    assert absent() == ["jaav"]
