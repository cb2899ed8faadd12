"""How a program of Spark ends: by itself, or in order when a signal asks for it.

The program runs in a thread of its own. The main thread waits, takes the signals, and ends what
the program has started: first its jobs, then the session, at last the JVM by its process id. So a
signal never meets PySpark in the middle of a call, where it would leave the JVM behind.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.pipelines.failures import FAILED
from tidelog.spark.pipelines.interrupts import INTERRUPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.1
_START_S = 15.0
"""How long PySpark may take to notice that the JVM that it starts has ended."""
_JOBS_S = 10.0
_AWAITED_S = 60.0
_SIGNAL_S = 5.0


class Interrupted(Exception):  # noqa: N818 -- it is no error
    """The program was asked to end before it began."""


class Ending:
    """What a program has started, as far as that must be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts = False
        self._spark: SparkSession | None = None

    def started(self, make: Callable[[], "SparkSession"]) -> "SparkSession":
        """The session; Interrupted if nobody wants it any more."""
        with self._lock:
            _refuse_if_asked()
            self._starts = True
        try:
            self._spark = spark = make()
        finally:
            self._starts = False
        _refuse_if_asked()
        return spark

    def stop(self) -> None:
        """The session ends, if there is one."""
        if self._spark is not None:
            self._spark.stop()

    def break_off(self, work: threading.Thread) -> None:
        """End what the program does, and wait for it; a second signal ends the waiting."""
        with self._lock:
            has_begun = self._starts or self._spark is not None
        if has_begun:
            _wait(self._has_no_start, _START_S)
            limit_s = _AWAITED_S if INTERRUPTS.is_awaited else _JOBS_S
            _wait(lambda: self._is_done(work), limit_s)
        if self._spark is not None and work.is_alive():
            with suppress(Exception):  # the JVM may be gone
                self._spark.stop()
        end_processes()

    def _has_no_start(self) -> bool:
        """A JVM that ends while it starts is an error for PySpark, which then cleans up."""
        if self._starts:
            end_processes()
        return not self._starts

    def _is_done(self, work: threading.Thread) -> bool:
        """Jobs are cancelled again and again: the program may be about to start the next one."""
        if self._spark is not None and not INTERRUPTS.is_awaited:
            with suppress(Exception):  # the JVM may be gone
                self._spark.sparkContext.setLogLevel("OFF")
                self._spark.sparkContext.cancelAllJobs()
        work.join(_LOOK_S)
        return not work.is_alive()


def run_to_the_end(work: Callable[[Ending], int]) -> int:
    """The exit code of the work; the process ends here if a signal has asked for it."""
    ending, codes = Ending(), [FAILED]
    thread = threading.Thread(target=_work, args=(work, ending, codes), daemon=True)
    INTERRUPTS.install()
    try:
        INTERRUPTS.hold()
        thread.start()
        while thread.is_alive() and not INTERRUPTS.asked:
            thread.join(_LOOK_S)
        if INTERRUPTS.asked:
            logging.disable()  # what PySpark says of a JVM that is told to end
            ending.break_off(thread)
            _exit(INTERRUPTS.code if thread.is_alive() else codes[-1])
    finally:
        INTERRUPTS.restore()
    return codes[-1]


def _work(work: Callable[[Ending], int], ending: Ending, codes: list[int]) -> None:
    """The JVM and its workers inherit the signals that this thread blocks: Ctrl-C of a terminal,
    which goes to all processes, is for the main thread alone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        codes.append(work(ending))
    except Interrupted:
        codes.append(INTERRUPTS.code)
    except Exception:
        if not INTERRUPTS.asked:
            raise
        codes.append(INTERRUPTS.code)  # its JVM was ended in the middle of a call


def _refuse_if_asked() -> None:
    if INTERRUPTS.asked:
        raise Interrupted


def _wait(is_done: Callable[[], bool], limit_s: float) -> None:
    until, times = time.monotonic() + limit_s, INTERRUPTS.times
    while not is_done() and INTERRUPTS.times == times and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _exit(code: int) -> None:
    """Without waiting for threads that nobody needs any more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it
            stream.flush()
    os._exit(code)


def end_processes() -> None:
    """All that this process has started, and what those have."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = [*_descendants(os.getpid())]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + _SIGNAL_S
        while any(_is_alive(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(_LOOK_S / 10)


def _descendants(pid: int) -> Iterator[int]:
    parents = dict(_parents())
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    yield from found - {pid}


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        row = _state_of(int(entry.name))
        if row is not None:
            yield int(entry.name), row[1]


def _is_alive(pid: int) -> bool:
    return _state_of(pid) is not None


def _state_of(pid: int) -> tuple[str, int] | None:
    """Its state and its parent; None if it has ended."""
    try:
        rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if rest[0] in "ZX" else (rest[0], int(rest[1]))
