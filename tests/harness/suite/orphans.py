"""Ends what a run of the tests leaves: clusters, JVMs and commands, however the run itself ended.

Each process of a run has the run's mark among its variables, and so do the processes that it
starts. A run that is killed can end none of them, and workers of a run have seconds to stop what
their tests have started. So a process apart waits until the run has ended, and ends what has its
mark: first as a shell would, so that a cluster can remove its shared memory, then at once.

This file is run by itself, with nothing but the standard library: `orphans.py PID MARK SECONDS`.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK = "HARNESS_RUN"
ALONE_S = 20.0
"""Workers that have lost their run stop what they have begun within so many seconds."""
ASKED_S = 15.0
"""And what was asked to end, within so many."""
LOOK_EVERY_S = 0.2


def watch(alone_s: float = ALONE_S) -> None:
    """Have a process watch over this one, which is the run, and over all that it will start."""
    mark = uuid4().hex
    os.environ[MARK] = mark
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark, str(alone_s)],
        env={},  # it must have no mark, also not that of a run around this one
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).returncode = 0  # it outlives this process, and nobody waits for it


def end_orderly(_number: int, _frame: object) -> None:
    """A handler of signals by which a run ends as by Ctrl-C: fixtures stop what they started.

    Only for a process that runs no tests. What a test forks would inherit it, and a signal that
    comes before the fork has returned would be lost: such a run dies, and is cleaned up after.
    """
    raise KeyboardInterrupt


def marked(mark: str) -> Iterator[int]:
    """The processes that have the mark among the variables with which they were started."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def end_all(mark: str, alone_s: float) -> None:
    """As workers do, then as a shell does, then at once."""
    if _are_gone(mark, alone_s):
        return
    for number, within_s in ((signal.SIGTERM, ASKED_S), (signal.SIGKILL, ASKED_S)):
        for pid in marked(mark):
            with suppress(OSError):
                os.kill(pid, number)
        if _are_gone(mark, within_s):
            return


def _are_gone(mark: str, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while any(True for _ in marked(mark)):
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def main() -> None:
    pid, mark, alone_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    with suppress(OSError):  # it may have ended by now
        run = os.pidfd_open(pid)
        select.select([run], [], [])
    end_all(mark, alone_s)


if __name__ == "__main__":
    main()
