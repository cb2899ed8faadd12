"""Settings of the whole run, and the fixtures that all tests may use."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from harness.clients.dropped_sockets import forgive_kafka_python
from harness.faults.planting import planting
from harness.kafka.shared import shared_kafka
from harness.mutants.judging import Told
from harness.processes.cluster import cluster, fresh_cluster
from harness.processes.golden import golden
from harness.processes.lonely import alone
from harness.spark.shared import shared_spark
from harness.suite.budgets import histories, pytest_terminal_summary
from harness.suite.durations import Measured, Recording
from harness.suite.loop import Loop
from harness.suite.orphans import end_orderly, watch
from harness.suite.repeating import AtNight, Busy, Failures, Repeating
from harness.suite.second_try import SecondTry
from harness.suite.sharing import Sharing, Sorting
from harness.suite.whole import TellsItsEnd, Whole

__all__ = [
    "alone",
    "cluster",
    "fresh_cluster",
    "golden",
    "histories",
    "planting",
    "pytest_terminal_summary",
    "shared_kafka",
    "shared_spark",
]

COMMON = settings(
    deadline=None,  # machines are shared; a slow case is no fault
    print_blob=True,  # a failure prints the line that shows the same case again
    suppress_health_check=[HealthCheck.too_slow],
)

settings.register_profile("loop", COMMON, max_examples=50)
settings.register_profile("full", COMMON, max_examples=100)
# The same cases each time: what one change breaks, another must not be blamed for.
settings.register_profile("ci", COMMON, max_examples=100, derandomize=True)
settings.register_profile("nightly", COMMON, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
if settings.get_current_profile_name() == "ci":
    # Hypothesis draws numbers that stand in loaded modules, and which those are depends on what the
    # worker ran before.
    vars(providers)["is_local_module_file"] = lambda _path: False


# Images of containers often forbid to keep bytecode. The tests start processes by the thousand, and
# each would compile anew all that it imports: a tenth of the run's time on a processor.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Who starts the run in the background has it ignore Ctrl-C and hang-ups, and all children inherit
# that: the tests of what these signals do would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


OPEN_FILES = Path("/proc/self/fd")
DESCRIPTORS_MAX = 100


@pytest.fixture(autouse=True)
def descriptors_are_let_go() -> Iterator[None]:
    """What a test leaves open the whole worker has to live with: from 1,024 on `select` fails in
    tests that have done nothing wrong."""
    before = len([*OPEN_FILES.iterdir()])
    yield
    left = len([*OPEN_FILES.iterdir()]) - before
    assert left < DESCRIPTORS_MAX, f"it leaves {left} descriptors open"


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: at any time some tests wait for others' processes."""
    return (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    """One process hears of all tests: the only one, or the one that has the workers."""
    if config.getoption("--nightly"):
        settings.load_profile("nightly")
    plugins = config.pluginmanager
    plugins.register(Loop(config))
    is_worker = hasattr(config, "workerinput")
    repeat, busy = config.getoption("--repeat"), config.getoption("--busy")
    if repeat > 1:
        plugins.register(Repeating(repeat))
    if is_worker or not config.getoption("numprocesses"):
        plugins.register(Measured())
    if is_worker:
        plugins.register(Sorting())
        plugins.register(TellsItsEnd())
        return
    watch()
    if config.getoption("numprocesses"):
        signal.signal(signal.SIGTERM, end_orderly)
    plugins.register(Sharing())
    plugins.register(Whole())
    plugins.register(Recording(config))
    plugins.register(Told())
    if repeat > 1:
        plugins.register(Failures(repeat))
    if busy:
        plugins.register(Busy(busy))
    if config.getoption("--nightly"):
        plugins.register(AtNight(config))
    if config.getoption("--second-try"):
        plugins.register(SecondTry(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live as long as the process: nothing of them is looked for as garbage, now
    or between tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    """By now everything is loaded."""
    forgive_kafka_python()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        choices=["compare", "write"],
        default="compare",
        help="write: write the texts in tests/golden anew instead of comparing them",
    )
    parser.addoption(
        "--plants",
        choices=["compare", "write"],
        default="compare",
        help="write: search seeds that find the planted faults, and record them in plants.json",
    )
    parser.addoption(
        "--nightly",
        action="store_true",
        help="draw as much as a night has time for, with new seeds",
    )
    parser.addoption(
        "--second-try",
        action="store_true",
        help="run tests with real processes that fail once more, alone; up to three may pass then",
    )
    parser.addoption(
        "--repeat", type=int, default=1, help="run each test so often, and count failures"
    )
    parser.addoption(
        "--busy", type=int, default=0, help="keep so many processors busy beside the tests"
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write what each test file that is run takes into tests/durations.json",
    )


@pytest.fixture
def nightly(request: pytest.FixtureRequest) -> bool:
    """Whether the run may take hours."""
    return bool(request.config.getoption("--nightly"))
