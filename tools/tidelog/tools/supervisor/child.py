"""Forks one process of the cluster, and what it does before its own main function.

A child closes what it inherited, asks for a signal at its parent's death, and has its log, its name
and its lock before the first line of broker or coordinator code runs.
"""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tidelog.kernel.launch import log_file
from tidelog.node.runtime import process
from tidelog.tools.supervisor.folder import hold_as_child

_DESCRIPTORS_MAX = 1 << 20
_SOFTWARE_ERROR = 70
_LAST_WORDS_BYTES = 4096


class Work(Struct, frozen=True):
    """What a child is to do."""

    role: str
    process_id: int
    short: str
    """For `top`, at most 10 characters."""
    data_dir: str
    main: Callable[[int], int]
    """Takes the descriptor to report on, returns the exit code."""
    close_inherited: Callable[[], None]
    """Closes the parent's objects, so that none closes a descriptor of the child's later."""


class Forked(Struct, frozen=True):
    """The parent's ends: both are to be closed by it."""

    pid: int
    pidfd: int
    ready_fd: int


def fork(work: Work) -> Forked:
    """From the main thread of a process that has no other thread.

    OSError where it cannot be made, or cannot be watched; then there is no such process.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    parent = os.getpid()
    # Between the fork and the child's own handlers a signal would wake the parent instead.
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _run(work, writer, parent)
        pidfd = _watched(pid)
    except OSError:
        os.close(reader)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    return Forked(pid, pidfd, reader)


def _watched(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        end(pid)
        raise


def end(pid: int) -> None:
    """Kill a child that nobody has reaped, so the number is still its own, and wait for it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _run(work: Work, ready_fd: int, parent: int) -> None:
    """Never returns."""
    code = _SOFTWARE_ERROR
    try:
        _become_child(work, ready_fd, parent)
    except BaseException as error:  # noqa: BLE001 -- there is no log yet: its parent has one
        reason = f"{type(error).__name__}: {error}"
        process.report_failed(ready_fd, f"its process could not be prepared: {reason}")
        os._exit(code)
    try:
        code = work.main(ready_fd)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else _SOFTWARE_ERROR
    except BaseException:  # noqa: BLE001 -- the last frame of the process: say it, then end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become_child(work: Work, ready_fd: int, parent: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    # Ctrl-C and a closed terminal reach the whole group; the supervisor ends us in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    work.close_inherited()
    os.closerange(3, ready_fd)
    os.closerange(ready_fd + 1, _DESCRIPTORS_MAX)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    process.end_with_parent(parent)
    # What it prints before it has its log would go to the terminal, where it might have to wait.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    process.setup_logging(
        log_file(work.data_dir, work.role, work.process_id), work.role, work.process_id
    )
    which = f" {work.process_id}" if work.role == "broker" or work.process_id else ""
    process.set_title(work.short, f"tidelog {work.role}{which}")
    hold_as_child(Path(work.data_dir))
    gc.enable()


def reap(pidfd: int) -> int | None:
    """A dead child's exit code, or the negative number of its signal; None while it lives."""
    result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def last_words(log: str) -> str:
    """The last line of a log, if it is no event but what a dying process printed."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    last = lines[-1] if lines else b""
    return "" if last.startswith(b"{") else process.printable(last)
