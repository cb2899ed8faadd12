"""Runs something in a forked child, which may be broken in any way, and hears what came of it."""

import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

WAITS_S: Final = 180.0
"""A child that has not ended by then waits for something that never comes."""
MEMORY_BYTES: Final = 3 << 30
SEES_S: Final = 0.2
OVER_TIME: Final = "takes far longer than usual"

BROKEN: Final = "broken"
"""The child tells this, and why, where the work itself raised something."""

Tell = Callable[[Any], None]


class OverTimeError(BaseException):
    """Raised within a test that uses much more processor time than it did before.

    No `except Exception` of the product may take it for its own.
    """


def in_child(work: Callable[[Tell], Any], most_s: float = WAITS_S) -> list[Any]:
    """What the work tells, by JSON, in the order of telling: as much as came before it ended."""
    read, write = os.pipe()
    gc.freeze()  # the child's collections would copy all pages of the parent
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_child(work, write)
    gc.unfreeze()
    os.close(write)
    try:
        lines = _heard(read, time.monotonic() + most_s).split(b"\n")
    finally:
        os.close(read)
        for end in (os.killpg, os.kill):  # with what it has started
            with suppress(ProcessLookupError):
                end(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [json.loads(line) for line in lines[:-1]]


def _be_child(work: Callable[[Tell], Any], write: int) -> None:
    def tell(what: Any) -> None:
        os.write(write, json.dumps(what).encode() + b"\n")

    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _be_silent()
        work(tell)
    except BaseException as failure:  # noqa: BLE001 -- only the parent can say it
        tell([BROKEN, repr(failure)])
    finally:
        os._exit(0)


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _heard(read: int, end_s: float) -> bytes:
    told = b""
    while (left := end_s - time.monotonic()) > 0:
        if not select.select([read], [], [], min(left, SEES_S))[0]:
            continue
        some = os.read(read, 1 << 16)
        if not some:
            break
        told += some
    return told


def limited(work: Callable[[], Any], processor_s: float) -> Any:
    """Raise `OverTimeError` in the work once it has used that much processor time."""

    def over(*_of: object) -> None:
        raise OverTimeError(OVER_TIME)

    before = signal.signal(signal.SIGPROF, over)
    # It is raised again and again: an endless loop may have it lie in a `finally`.
    signal.setitimer(signal.ITIMER_PROF, processor_s, 1.0)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
