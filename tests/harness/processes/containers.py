"""A process in a pid namespace of its own, as in a container."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_INITIAL = "pid:[4026531836]"


@dataclass
class Running:
    """The container's only process waits until its input ends."""

    namespace: str
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """When this returns, its process is dead, and collected."""
        self.process.communicate()


@contextmanager
def container() -> Iterator[Running]:
    """Skips the test where this process may not make one, or would not see what is in it."""
    program = shutil.which("unshare")
    if program is None or os.geteuid() or _namespace_of("self") != _INITIAL:
        pytest.skip("this needs unshare, root, and a machine that is no container itself")
    command = [program, "--pid", "--fork", "--kill-child", "sh", "-c", "echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        if not outer.stdout.readline():
            pytest.skip("this machine lets nobody make a namespace")
        (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        try:
            yield Running(_namespace_of(inner), outer)
        finally:
            outer.kill()


def _namespace_of(pid: str) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
