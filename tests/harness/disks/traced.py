"""The system calls of a running thread, as strace counts them."""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.processes.cluster import until
from harness.suite.need import need, need_that

_CALL = re.compile(r"^(\w+)\((.*)$", re.DOTALL)
ATTACH_WITHIN_S = 10.0


def need_strace(folder: Path) -> None:
    """Skip, or fail where it is required, unless strace is here and may attach to a process."""
    need("strace")
    done = subprocess.run(
        ["strace", "-o", str(folder / "probe"), "true"], capture_output=True, check=False
    )
    need_that("strace", works=done.returncode == 0, why="may not trace processes here")


class Traced:
    """`with Traced(pid, folder) as traced` counts the calls of that process's main thread."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._file = folder / f"strace-{pid}-{time.monotonic_ns()}"
        self._pid = pid
        self.lines: list[str] = []
        self.lasted_s = 0.0

    def __enter__(self) -> Self:
        self._strace = subprocess.Popen(
            ["strace", "-q", "-s", "16", "-o", str(self._file), "-p", str(self._pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._is_attached, "strace attaches", ATTACH_WITHIN_S)
        self._began = time.monotonic()
        return self

    def _is_attached(self) -> bool:
        status = Path(f"/proc/{self._pid}/status").read_text()
        tracer = re.search(r"^TracerPid:\s*(\d+)$", status, re.MULTILINE)
        # The first call shows that it does not only hold the process, but watches it.
        seen = self._file.exists() and self._file.stat().st_size > 0
        return tracer is not None and int(tracer[1]) == self._strace.pid and seen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lasted_s = time.monotonic() - self._began
        os.kill(self._strace.pid, signal.SIGINT)  # it detaches; the process goes on
        self._strace.wait(ATTACH_WITHIN_S)
        self.lines = self._file.read_text(errors="replace").splitlines()

    @property
    def counts(self) -> Counter[str]:
        """How often each call was made."""
        return Counter(match[1] for line in self.lines if (match := _CALL.match(line)))

    def calls(self, name: str) -> list[str]:
        """The lines of one call."""
        return [line for line in self.lines if line.startswith(f"{name}(")]
