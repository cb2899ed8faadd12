"""Forking a process of the cluster: one that cannot be watched does not live on."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from harness.processes.other_user import in_its_own_process
from tidelog.tools.supervisor import child
from tidelog.tools.supervisor.folder import DataFolder


def work(data: Path, main: Callable[[int], int]) -> child.Work:
    return child.Work(
        role="broker",
        process_id=0,
        short="broker-0",
        data_dir=str(data),
        main=main,
        close_inherited=lambda: None,
    )


def never_ends(_ready_fd: int) -> int:
    while True:
        signal.pause()


def test_a_child_that_cannot_be_watched_is_killed(tmp_path: Path) -> None:
    DataFolder.claim(tmp_path, "default").let_go()

    def fork() -> list[object]:
        pipe = os.pipe()  # the next two numbers
        for descriptor in pipe:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (pipe[1] + 1, pipe[1] + 1))
        try:
            child.fork(work(tmp_path, never_ends))
        except OSError as error:
            found: list[object] = [error.strerror]
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            found.append("no child is left")
        left = os.pipe()
        found.append(left == pipe)
        return found

    assert in_its_own_process(fork) == repr(["Too many open files", "no child is left", True])


def test_a_child_that_cannot_write_its_log_says_so_to_its_parent(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")

    def fork() -> str:
        forked = child.fork(work(tmp_path, never_ends))
        _, status = os.waitpid(forked.pid, 0)
        return f"{os.waitstatus_to_exitcode(status)}: {os.read(forked.ready_fd, 4096).decode()}"

    said = in_its_own_process(fork)
    assert said[1:].startswith(
        "70: failed: its process could not be prepared: NotADirectoryError: "
    )
    assert "logs/broker-0.log" in said
