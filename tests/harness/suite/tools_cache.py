"""What tests download or compile once, kept in a folder of the tools' cache.

Of many test processes one makes it and the others wait. Neither counts towards the time limit of
the test that happens to need it first: on a new machine a build fetches modules and compiles a
standard library, which takes minutes where the machine is busy.

The cache is in the user's cache folder, for all checkouts. One that lies in the checkout itself is
used where it is there already, and `HARNESS_TOOLS_CACHE` names any other.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.suite.used import MAKING

BUILD_SECONDS_MAX = 900
"""For one download or compilation."""
ATTEMPTS = 2
"""A download may fail for a moment."""
CACHE_VARIABLE = "HARNESS_TOOLS_CACHE"
CACHE_OF_CHECKOUT = Path(__file__).resolve().parents[3] / ".tools-cache"

_seen_whole: set[Path] = set()


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, which `make` fills when it is not there yet, or not whole."""
    folder = _cache() / name
    if not is_made(name):
        with clock_stopped(), MAKING.counted(), _lock_of(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_made(name):
                _remove_what_was_left(folder)
                _make_aside(folder, make)
    return folder


def is_made(name: str) -> bool:
    """Whether an earlier test has made it, and all of its files are there."""
    folder = _cache() / name
    if not folder.is_dir():
        return False
    if folder not in _seen_whole and not _is_whole(folder):
        return False
    _seen_whole.add(folder)
    return True


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
    if given:
        return Path(given)
    if CACHE_OF_CHECKOUT.is_dir():
        return CACHE_OF_CHECKOUT
    of_user = os.environ.get("XDG_CACHE_HOME")
    return (Path(of_user) if of_user else Path.home() / ".cache") / "tidelog-tests"


def _lock_of(folder: Path) -> IO[str]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder.with_name(f"{folder.name}.lock").open("w")
    except OSError as error:
        raise OSError(
            f"{folder.parent} cannot hold {folder.name} ({error.strerror}): set {CACHE_VARIABLE} to"
            " a folder that can be written"
        ) from error


def _files_of(folder: Path) -> Path:
    """Tells the sizes of the files in that folder."""
    return folder.with_name(f"{folder.name}.files")


def _is_whole(folder: Path) -> bool:
    """What somebody has removed or cut would fail every test that needs it."""
    listed = _files_of(folder)
    if not listed.exists():
        return True  # it was made before there were lists
    sizes: dict[str, int] = json.loads(listed.read_text())
    return all(_size(folder / name) == size for name, size in sizes.items())


def _size(path: Path) -> int:
    """-1 where there is no such file, or a link that leads nowhere."""
    return path.stat().st_size if path.is_file() else -1


def _remove_what_was_left(folder: Path) -> None:
    """By a run that was killed, or what is damaged; who calls it has the lock."""
    for left in (folder, *folder.parent.glob(f"{folder.name}.part-*")):
        if left.is_dir():
            shutil.rmtree(left)


def _make_aside(folder: Path, make: Callable[[Path], None]) -> None:
    """Make it elsewhere and rename it last, so that whoever sees the folder sees all of it."""
    for attempt in range(1, ATTEMPTS + 1):
        prefix = f"{folder.name}.part-"
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as scratch:
            work = Path(scratch) / "work"
            work.mkdir()
            try:
                make(work)
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise
                sys.stderr.write(f"{folder.name} is made once more: {error}\n")
                continue
            files = [path for path in work.rglob("*") if path.is_file()]
            sizes = {str(path.relative_to(work)): _size(path) for path in files}
            _files_of(folder).write_text(json.dumps(sizes))
            work.rename(folder)
            return
