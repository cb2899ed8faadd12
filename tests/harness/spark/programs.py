"""Programs of Spark that take a request a line and answer each, from a test's side."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from harness.processes.cluster import until
from harness.spark import setup as spark
from harness.spark.talk import ANSWER, FOLDER, SCRATCH

ANSWER_S: Final = 300
COMPLAINTS: Final = "stderr"
"""The file, in the folder of a program, that has them."""
_PATIENT: Final = {"SPARK_AUTH_SOCKET_TIMEOUT": "120"}
"""Spark's Pythons wait for its JVM for this long, in seconds."""


class Session:
    """A program with a session of Spark."""

    def __init__(self, folder: Path, *words: str) -> None:
        scratch = folder / SCRATCH
        scratch.mkdir(exist_ok=True)
        with (folder / COMPLAINTS).open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *words],
                env={
                    **spark.environment(),
                    **spark.kept_in(scratch),
                    FOLDER: str(folder),
                    **_PATIENT,
                },
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def ask(self, asked: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def answer(self, cells: int = 1) -> dict[str, Any] | None:
        """None if the program has ended without one. A program that hangs is killed."""
        assert self.process.stdout is not None
        wait_s = cells * ANSWER_S
        hangs = threading.Timer(wait_s, self._kill)
        hangs.start()
        try:
            for line in self.process.stdout:
                if line.startswith(ANSWER):
                    found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                    return found
        finally:
            is_in_time = hangs.is_alive()
            hangs.cancel()
        assert is_in_time, f"the session has not answered within {wait_s} s"
        return None

    def machines(self) -> list[int]:
        """The JVMs of the program."""
        living = _processes().items()
        return [
            pid for pid, (name, leader) in living if name == "java" and leader == self.process.pid
        ]

    def end(self) -> None:
        """It, and whoever is left of it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        until(lambda: not self._kill(), "all of a session have ended")
        self.process.wait()

    def _kill(self) -> bool:
        left = [pid for pid, (_, leader) in _processes().items() if leader == self.process.pid]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.poll()
        return bool(left)


def _processes() -> dict[int, tuple[str, int]]:
    """All that live, with their names and the leaders of their sessions."""
    found = {}
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            with suppress(OSError):
                _, _, rest = (one / "stat").read_text().partition("(")
                name, _, numbers = rest.rpartition(")")
                state, _, _, leader = numbers.split()[:4]
                if state != "Z":
                    found[int(one.name)] = (name, int(leader))
    return found
