"""A real cluster whose every file call is traced, from the first process to the last."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.disks.trace_replay import TRACED, Replay
from harness.processes.cluster import KEEPS_OLD_RECORDS, Cluster, until
from harness.processes.commands import Finished
from tidelog.tools.output import UNREACHABLE
from tidelog.tools.supervisor.folder import run_in


@dataclass(slots=True)
class TracedCluster(Cluster):
    """As `Cluster`; started by strace, which ends when the last process has."""

    replay: Replay | None = None
    _position: int = 0

    @property
    def trace(self) -> Path:
        return self.folder / f"trace-{len(self.runs)}"

    def command(self, *words: str, text: str | None = None, timeout_s: float = 60.0) -> Finished:
        """A traced process stands still for a moment at each call; who looks just then sees a
        stopped one, and asks again."""
        while True:
            done = super(TracedCluster, self).command(*words, text=text, timeout_s=timeout_s)
            if done.code != UNREACHABLE or "is stopped" not in done.err:
                return done

    @contextmanager
    def running(self) -> Iterator[None]:
        """One run; it ends by `down`, within."""
        words = ["up", "--brokers", str(self.brokers), "--base-port", "0"]
        for name, value in {**KEEPS_OLD_RECORDS, **self.settings}.items():
            words += ["--set", f"{name}={value}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.replay = self.replay or Replay(str(self.folder / ".tidelog"))
        tracer = ["strace", "-f", "-y", "-q", "-s", "0", "--seccomp-bpf", "-e", f"trace={TRACED}"]
        trace = self.folder / f"trace-{len(self.runs) + 1}"
        self._position = 0
        process = subprocess.Popen(
            [*tracer, "-o", str(trace), sys.executable, *self.program, *words],
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with process:
            try:
                self._wait_until_up()
                yield
                process.wait(30)
            finally:
                process.kill()
                self._clean_up()
        self.follow()

    def _wait_until_up(self) -> None:
        data = self.folder / ".tidelog/default"
        until(lambda: run_in(data) is not None, "it writes down that it runs")
        run = run_in(data)
        assert run is not None
        until(lambda: self.command("wait", "ready", "--timeout", "30").code == 0, "it is ready", 40)
        self.runs.append(run)
        self.bootstrap = run.bootstrap

    def follow(self) -> None:
        """Take what was traced since the last look. Nobody may be writing where it matters."""
        assert self.replay is not None
        with self.trace.open(encoding="utf-8", errors="surrogateescape") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._position += len(whole.encode("utf-8", "surrogateescape"))
        self.replay.feed(whole.splitlines())

    def wait_until_traced_dead(self, pid: int) -> None:
        """What a killed process did is in the trace once its end is."""
        ended = re.compile(rf"^{pid} +\+\+\+ killed by SIGKILL", re.MULTILINE)

        def told() -> bool:
            return ended.search(self.trace.read_text(errors="surrogateescape")) is not None

        until(told, f"the trace tells that {pid} is dead")
