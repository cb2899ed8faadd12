"""The process that compacts: its main function, and the broker's end of the pipes to it. A shell.

A process of its own because the work is all Python: in a thread of the broker it would hold the
interpreter's lock, 5 ms at a time, and every produce would wait for it. It touches files only, in
the one directory it is given, and ends with the broker. (docs/decisions/0003-compaction.md)
"""

import contextlib
import ctypes
import errno
import gc
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from tidelog.kernel.failures import CorruptError
from tidelog.node.ipc.fault_layout import Striker
from tidelog.node.ipc.ledger_memory import LedgerMemory
from tidelog.node.log.causes import Cause
from tidelog.node.log.cleaning import Cleaned, Finished, Job, clean
from tidelog.node.log.compactions import failure_of
from tidelog.node.log.failed_passes import Failure
from tidelog.node.runtime.disk import open_disk
from tidelog.node.runtime.disk_faults import open_faults
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.ledger import Ledger
from tidelog.node.runtime.unrecorded import Unrecorded
from tidelog.wire.checkpoints import PARTITION_METADATA

WORKER_MODULE: Final = "tidelog.node.runtime.cleaner_worker"
_PR_SET_PDEATHSIG: Final = 1
_NICENESS: Final = 10
_SLEEP_MIN_S: Final = 0.005
_LAST_WORDS_S: Final = 5.0
_OPENED: Final = re.compile(r"/proc/self/fd/\d+")
"""How the worker names its directory; people are told the path that it was given."""


class Order(msgspec.Struct, frozen=True):
    """One pass to be done."""

    path: str
    metadata: bytes
    """What the partition's metadata file holds: a path may have come to name another topic's."""
    bytes_per_second: float
    job: Job


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A pass could not be done."""

    failure: Failure


class WorkerDiedError(Exception):
    """The worker ended before it had said what came of its order."""


Result = Cleaned | Finished | Failed


class Throttle:
    """Sleeps so that no more than so many bytes go through in a second."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._ahead_until = clock()

    def __call__(self, size: int) -> None:
        now = self._clock()
        self._ahead_until = max(self._ahead_until, now) + size / self._rate
        if self._ahead_until - now >= _SLEEP_MIN_S:
            self._sleep(self._ahead_until - now)


class Worker:
    """The broker's end. Used by one thread, but for `kill`."""

    def __init__(self, ledger: Unrecorded, faults: Healthy) -> None:
        import subprocess  # noqa: PLC0415 -- most brokers never need it

        self._ledger, self._told = ledger, ledger.helper()

        # Of the parent's path nothing but what its variables say: never the current folder.
        command = [sys.executable, "-P", "-m", WORKER_MODULE]
        told = [str(os.getpid()), str(len(self._told)), *self._told, *faults.helper()]
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            [*command, *told], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def results(self, order: Order) -> Iterator[Result]:
        """What comes of an order, as it comes; WorkerDiedError where the process ended before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._died() from None
        result: Result | None = None
        while result is None or isinstance(result, Cleaned):
            line = self._process.stdout.readline()
            if not line.endswith(b"\n"):
                raise self._died()
            try:
                result = msgspec.json.decode(line, type=Result)
            except msgspec.DecodeError as error:
                raise WorkerDiedError(f"the worker process talks nonsense: {error}") from None
            yield result

    def _died(self) -> WorkerDiedError:
        """It closed its pipes, so it ends, if it has not ended yet."""
        import subprocess  # noqa: PLC0415 -- as above

        try:
            code = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return WorkerDiedError("the worker process does not answer any more")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerDiedError(f"the worker process died ({how})")

    def kill(self) -> None:
        """From any thread: what it was doing is found unfinished, and removed, later."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, and wait until it is dead: from then on it touches no file."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """It ends when nothing more is ordered; what it still does is thrown away."""
        self._process.kill()
        # Where it died before it took its last order, that is still on its way into the pipe.
        with contextlib.suppress(BrokenPipeError), self._process:
            pass  # closes the pipes and collects it
        self._ledger.end_helper(self._told)


def main() -> None:
    """Take orders until the broker closes the pipe."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        return  # the broker died before this was asked for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    gc.disable()  # nothing here makes cycles, and the key map is large
    of_ledger, told = int(sys.argv[2]), sys.argv[3:]
    disk = _Disk(_open_ledger(told[:of_ledger]), open_faults(told[of_ledger:], Striker.CLEANER))
    for line in sys.stdin.buffer:
        _obey(msgspec.json.decode(line, type=Order), disk)


class _Disk(NamedTuple):
    """What is told of the files, and what they suffer from."""

    ledger: Ledger | None
    faults: Healthy


def _open_ledger(told: list[str]) -> Ledger | None:
    """One of its own: each word of a ledger has one writer."""
    memory = LedgerMemory.open(*told) if told else None
    return None if memory is None else Ledger(memory, (), lambda: None, tells_syncs=True)


def _obey(order: Order, disk: _Disk) -> None:
    """Whatever goes wrong concerns this log alone: the next order may be about another."""
    try:
        _clean(order, disk)
    except (CorruptError, OSError) as error:
        found = failure_of(error)
        _say(Failed(Failure(found.cause, _OPENED.sub(order.path, found.reason), found.segment)))
    except Exception as error:  # noqa: BLE001 -- no log may stop the compaction of the others
        _say(Failed(Failure(Cause.BUG, _described(error))))


def _described(error: Exception) -> str:
    """What went wrong, and where in our code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = frame.filename.rpartition("/")[2]
    return f"{type(error).__name__}: {error} ({file}:{frame.lineno})"


def _clean(order: Order, disk: _Disk) -> None:
    """In that very directory, wherever it is moved to meanwhile."""
    descriptor = os.open(order.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = f"/proc/self/fd/{descriptor}"
    ledger = disk.ledger
    if ledger is not None:
        ledger.also(path, os.path.dirname(order.path))  # noqa: PTH120 -- as long as the whole path
    try:
        directory = open_disk(path, open_files_max=64, ledger=ledger, faults=disk.faults)
        if (directory.read_all(PARTITION_METADATA) or b"") != order.metadata:
            raise FileNotFoundError(errno.ENOENT, "another topic's by now", order.path)
        for result in clean(directory, order.job, Throttle(order.bytes_per_second)):
            _say(result)
    finally:
        os.close(descriptor)


def _say(result: Result) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
