"""Programs of Spark that are told to end at a chosen moment, and what they leave behind.

Each runs in a session of its own, so that every process it starts can be found by the session's
number, also one whose parent is gone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.processes.cluster import send_all, until

START_S = 120.0
END_S = 60.0
LEFT_S = 20.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


class Program:
    """One of them, while it runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    def tell(self, number: signal.Signals, *, group: bool) -> None:
        """As a terminal does with Ctrl-C, to the whole group, or as `kill` does."""
        (os.killpg if group else os.kill)(self._process.pid, number)

    def until_it_is(self, moment: str, is_at_work: Callable[[], bool]) -> None:
        """Wait until it imports its modules, launches or starts a JVM, or is at work."""
        conditions: dict[str, Callable[[], bool]] = {
            "importing": self._is_importing,
            "launching": lambda: len(self.pids()) > 1,
            "starting": lambda: "java" in self.names(),
            "working": is_at_work,
        }
        until(lambda: self._has_ended() or conditions[moment](), f"it is {moment}", START_S)
        assert not self._has_ended(), self.ended()

    def ended(self, patience_s: float = END_S) -> Ended:
        """Waits for the end of the program itself, not of what it has left."""
        code = self._process.wait(patience_s)
        out, err = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return Ended(code, out, err)

    def left(self) -> list[str]:
        """What of its session still runs after a while."""
        with suppress(AssertionError):
            until(lambda: not self.pids(), "all have ended", LEFT_S)
        return self.names()

    def pids(self) -> list[int]:
        """Of its session, but those that wait for somebody to take note of their end."""
        return [pid for pid, _ in self._session()]

    def names(self) -> list[str]:
        """Of the same."""
        return [name for _, name in self._session()]

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _session(self) -> Iterator[tuple[int, str]]:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, _, _, session = rest.split()[:4]
            if int(session) == self._process.pid and state not in "ZX":
                yield int(entry.name), head.partition("(")[2]

    def _is_importing(self) -> bool:
        """It is a program of Spark, and neither signal would meet Python's own way to end. That
        cannot be changed for the first hundredths of a second of `python -m`."""
        process = Path(f"/proc/{self._process.pid}")
        words = (process / "cmdline").read_bytes().split(b"\0")
        if not any(word.startswith(b"tidelog.spark") for word in words):
            return False
        rows = (line.split(":\t") for line in (process / "status").read_text().splitlines())
        masks = {row[0]: int(row[1], 16) for row in rows if row[0] in {"SigBlk", "SigCgt"}}
        return bool((masks["SigBlk"] | masks["SigCgt"]) >> (signal.SIGTERM - 1) & 1)


@contextmanager
def started(
    words: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Program]:
    """Words after Python's name; nothing of it is left at the end."""
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    program = Program(process, folder)
    try:
        yield program
    finally:
        send_all(program.pids(), signal.SIGKILL)
        process.wait()
