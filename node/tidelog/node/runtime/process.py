"""What each process of a cluster does for itself: name, log, word to the parent. (shell)

A log is JSON lines, one event each, with fields; a child's standard output and error go to the same
file, so that the last words of a crash are there too. What only Linux has (`prctl`) stands here.
"""

import contextlib
import ctypes
import errno
import gc
import json
import logging
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tidelog.kernel.launch import Launch
from tidelog.node.ipc.board import Board, remove_memory_of_run
from tidelog.node.ipc.layout import Role, Slot, Word
from tidelog.node.ipc.ledger_memory import save_ledgers
from tidelog.node.runtime.lives import Life, identity

if TYPE_CHECKING:
    import asyncio  # the supervisor imports this module and has no loop

LOG_BYTES_MAX = 32 * 1024 * 1024
"""Then the file is renamed to `.1` and a new one begun."""
TEXT_CHARS_LOGGED_MAX = 512
_SENTENCE_BYTES_MAX = 4096  # below PIPE_BUF: written whole or not at all
ORPHANS_END_WITHIN_S = 5.0
_GC_THRESHOLDS = (25_000, 4, 1_000)
"""A collection stops all threads. One of the two younger generations looks at some 150,000 objects
at most, which takes about 20 ms; the oldest one comes after a hundred million new objects."""
_EXIT_FAILED = 1
_EXIT_BUG = 70
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15
_TITLE_PREFIX = "tide-"
_ARGUMENTS_START_FIELD = 48  # counted from 1, as in proc(5); the state is the third


def settle_collector(*, collect: bool = True) -> None:
    """Call once a process has what it needs: that is never searched for garbage again, and what
    comes later is searched in short pauses."""
    if collect:
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def printable(value: object, chars_max: int = TEXT_CHARS_LOGGED_MAX) -> str:
    """A stranger's text or bytes for a log or a terminal: nothing unprintable, bounded.

    >>> printable(b"a\\x1b[31m\\xff")
    'a\\\\x1b[31m\\\\xff'
    """
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    more = len(text) - chars_max
    text = text[:chars_max]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    return f"{text}... and {more} more" if more > 0 else text


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


class EventLog:
    """Events with fields: `log.info("segment_rolled", partition="t-0", size_bytes=1024)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={"fields": fields})


class EventFormatter(logging.Formatter):
    """A log record as one line of JSON; libraries' own records pass through it too."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "event": printable(record.getMessage()),
        }
        fields: dict[str, object] = getattr(record, "fields", {})
        line.update((name, _loggable(value)) for name, value in fields.items())
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _loggable(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_loggable(element) for element in value]
    return printable(value)


class LogFile(logging.Handler):
    """A log of bounded size. A full disk loses lines, never the process."""

    def __init__(self, path: str, *, take_output: bool, bytes_max: int = LOG_BYTES_MAX) -> None:
        super().__init__()
        self._path = path
        self._take_output = take_output
        self._bytes_max = bytes_max
        self._is_torn = False
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        if not self._take_output:
            return descriptor
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        return 2

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._size > self._bytes_max:
                self._begin_anew()
            self._write(self.format(record).encode() + b"\n")
        except OSError:
            self._size = 0  # try again much later

    def _write(self, line: bytes) -> None:
        """What a full disk has cut off is a line of its own: it spoils no later one."""
        if self._is_torn:
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        self._is_torn = written < len(line) and line[written - 1] != ord("\n")
        self._size += written

    def _begin_anew(self) -> None:
        Path(self._path).replace(f"{self._path}.1")
        old, self._descriptor = self._descriptor, self._open()
        self._size, self._is_torn = 0, False
        if old != self._descriptor:
            os.close(old)


def setup_logging(path: str, role: str, process_id: int, *, take_output: bool = True) -> None:
    """From now on what this process logs, and by default all it prints, goes to its log file."""
    handler = LogFile(path, take_output=take_output)
    handler.setFormatter(EventFormatter(f"{role}-{process_id}"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def report_ready(ready_fd: int) -> None:
    """Tell the supervisor, once, that clients are served (or the controller is active)."""
    _report(ready_fd, "ready")


def report_standby(ready_fd: int) -> None:
    """Tell the supervisor that this coordinator could lead at any moment; `ready` says it does."""
    with contextlib.suppress(OSError):  # as below
        os.write(ready_fd, b"standby\n")


def report_failed(ready_fd: int, sentence: str) -> None:
    """Tell the supervisor, once, why this process cannot come up; then return a non-zero code."""
    _report(ready_fd, f"failed: {' '.join(sentence.split())}")


def _report(ready_fd: int, line: str) -> None:
    try:
        os.write(ready_fd, line.encode()[: _SENTENCE_BYTES_MAX - 1] + b"\n")
    except OSError:
        return  # the supervisor is gone, and its death signal under way
    finally:
        os.close(ready_fd)


def cannot_use_files(data_dir: str, error: OSError) -> str:
    """What the user is told where a process cannot start because of its files."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return (
            f"no space left on the disk of {data_dir}: free some, or choose another folder "
            "with --data"
        )
    return f"it cannot use its files: {error}"


def cannot_start(launch: Launch, log: EventLog, error: Exception) -> int:
    """Say why, to whoever started this process and in its log; its exit code."""
    sentence = str(error)
    if isinstance(error, OSError):
        sentence = cannot_use_files(launch.data_dir, error)
    log.error("start_failed", reason=sentence)
    report_failed(launch.ready_fd, sentence)
    return _EXIT_FAILED


def set_title(short: str, title: str) -> None:
    """`short` is what `top` shows, `title` what `ps` shows instead of the command line."""
    name = f"{_TITLE_PREFIX}{short}".encode()[:_NAME_BYTES_MAX]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
    after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    start, end = (int(field) for field in after_name[_ARGUMENTS_START_FIELD - 3 :][:2])
    if 0 < start < end:
        # The kernel shows this stretch of memory as the command line; Python has its own copy.
        shown = title.encode()[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def end_with_parent(parent_pid: int) -> None:
    """SIGTERM when the supervisor dies; at once where it died before this was asked for."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def on_stop_signal(loop: "asyncio.AbstractEventLoop", stop: Callable[[], None]) -> None:
    """Have SIGTERM call `stop` on the loop. One that comes before the loop runs waits for that:
    the loop would lose it, and a start may take long.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.call_soon(signal.pthread_sigmask, signal.SIG_UNBLOCK, {signal.SIGTERM})


def crash_by_bugs(
    loop: "asyncio.AbstractEventLoop", log: EventLog, on_crash: Callable[[], None] = lambda: None
) -> None:
    """End where an exception reaches the loop, which nobody expected then: what is in memory may be
    wrong, the log is not. `on_crash` is called before that."""

    def crash(_loop: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        log.error("crashed", reason=repr(context.get("exception") or context.get("message")))
        with contextlib.suppress(Exception):
            on_crash()
            loop.default_exception_handler(context)
        os._exit(_EXIT_BUG)

    loop.set_exception_handler(crash)


def is_orphaned(launch: Launch) -> bool:
    """The supervisor is gone."""
    return os.getppid() != launch.supervisor_pid


def end_orphaned_run(launch: Launch, board: Board) -> None:
    """The coordinator's last act where the supervisor is gone: outlive the others, then clean up.

    Does nothing while the supervisor lives: it ends the processes in order and cleans up itself.
    """
    if not is_orphaned(launch):
        return
    others = _others_of_run(board)
    for _, descriptor in others:
        # A stopped process would sit on its death signal for ever.
        _send(descriptor, signal.SIGCONT)
    deadline = time.monotonic() + ORPHANS_END_WITHIN_S
    # Coordinators wait for one another's lock already.
    waited = [fd for role, fd in others if role not in {Role.COORDINATOR, Role.STANDBY}]
    for descriptor in waited:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            _send(descriptor, signal.SIGKILL)
    if _has_its_folder(launch):
        save_ledgers(launch.run_id, launch.data_dir)
    remove_memory_of_run(launch.run_id)
    remove_folder(launch.runtime_dir)


def _others_of_run(board: Board) -> list[tuple[int, int]]:
    """The roles and pidfds of those that live."""
    slots = [slot for number in range(board.slots) if (slot := board.read_slot(number)) is not None]
    return [
        (slot[Word.ROLE], descriptor)
        for slot in slots
        if slot[Word.PID] != os.getpid() and (descriptor := _open_ours(slot)) is not None
    ]


def _has_its_folder(launch: Launch) -> bool:
    """Whether the path of the data still leads to the folder that the run began with."""
    try:
        said = json.loads(Path(launch.runtime_dir, "run.json").read_bytes())
        return tuple(said["folder"]) == identity(launch.data_dir)
    except OSError:
        return True  # somebody has removed what the run said of itself
    except (ValueError, KeyError, TypeError):
        return False


def _open_ours(slot: Slot) -> int | None:
    """A pidfd of the process that this slot is about. A slot is not cleared when its process ends,
    and by now another process, of another cluster perhaps, may have the number."""
    life = structs.replace(Life.own(), pid=slot[Word.PID], started=slot[Word.STARTED])
    return life.open()


def _send(descriptor: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return  # ended in between


def remove_folder(path: str) -> None:
    """A flat folder of sockets and what is in it; others may remove it at the same time. What is
    not a folder of this user's own is left alone: its name may be a link of somebody else's."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            _empty(folder)
            Path(path).rmdir()
    except OSError:
        return  # somebody else was faster, or still puts something in
    finally:
        os.close(folder)


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
