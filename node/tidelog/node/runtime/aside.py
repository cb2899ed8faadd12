"""Work that takes the processor for long, in threads, in short steps. A shell.

There are two lanes, each a thread. Ordinary work takes some milliseconds and goes through the
first one. What turns out to be heavy goes on in the second, so that a batch that unpacks to a
million records does not hold up the compressed batches of other clients. Whoever has several
batches goes to the back of the line after each.

Python runs one thread at a time, so each step is followed by a short sleep: it is then that the
loop gets on, at once and not after the interpreter's 5 ms, each time it has let go of the lock.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import Pace, Steps

_T = TypeVar("_T")
_PAUSE_S: Final = 0.0001


class _Job(NamedTuple):
    work: Steps[Any]
    done: Callable[[Instant, Any], None]


class _Lane:
    """A thread that is started with its first job.

    It is a daemon: a broker that stops waits for no job, for nobody was answered.
    """

    def __init__(self, name: str, run: Callable[[_Job], None]) -> None:
        self._name = name
        self._do = run
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, job: _Job) -> None:
        """By one thread at a time until the lane's own has begun."""
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._do(self._jobs.get())


class Aside:
    """Each connection has one job under way at most: that is how many can wait.

    Invariant: a job is in one lane, and has memory of its own only while it is at the head of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "aside") -> None:
        self._loop = loop
        self._ordinary = _Lane(name, self._run)
        self._heavy = _Lane(f"{name}-heavy", self._run)

    def __call__(self, work: Steps[_T], done: Callable[[Instant, _T], None]) -> None:
        """`work` touches nothing that the loop does; `done` gets its result on the loop."""
        self._ordinary.put(_Job(work, done))

    def _run(self, job: _Job) -> None:
        """Go on until it is done, or is to wait in a lane."""
        try:
            while (pace := next(job.work)) is Pace.GO_ON:
                time.sleep(_PAUSE_S)
        except StopIteration as end:
            self._tell(partial(_hand_over, job, end.value))
            return
        except Exception as error:  # noqa: BLE001 -- raised again on the loop, where it is a bug
            self._tell(partial(_raise, error))
            return
        (self._heavy if pace is Pace.HEAVY else self._ordinary).put(job)
        time.sleep(_PAUSE_S)

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what)


def _hand_over(job: _Job, result: object) -> None:
    job.done(Instant(time.monotonic_ns()), result)


def _raise(error: Exception) -> None:
    raise error
