"""What tests download or compile once, kept in a folder of the tools' cache.

Of many test processes one makes it and the others wait. Neither counts towards the time limit of
the test that happens to need it first: on a new machine a build fetches modules and compiles a
standard library, which takes minutes where the machine is busy.
"""

import fcntl
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD_SECONDS_MAX = 900
"""For one download or compilation."""
CACHE_VARIABLE = "HARNESS_TOOLS_CACHE"
DEFAULT_CACHE = Path(__file__).resolve().parents[3] / ".tools-cache"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, which `make` fills when it is not there yet."""
    folder = _cache() / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with clock_stopped(), (folder.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _make_aside(folder, make)
    return folder


def is_made(name: str) -> bool:
    """Whether an earlier test has made it."""
    return (_cache() / name).is_dir()


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Pause the alarm that pytest-timeout has set for the running test, if there is one."""
    seconds_left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, seconds_left)


def _cache() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else DEFAULT_CACHE


def _make_aside(folder: Path, make: Callable[[Path], None]) -> None:
    """Make it elsewhere and rename it last, so that whoever sees the folder sees all of it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch) / "work"
        work.mkdir()
        make(work)
        work.rename(folder)
