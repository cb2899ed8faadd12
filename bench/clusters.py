"""A tidelog cluster to measure, started by its own command; and what any cluster here offers."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

HOST = "127.0.0.1"
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
"""Of every cluster here: pages of topics that are gone are not to be written while others run."""
_PATIENCE_S = 60.0
_PORT_MIN = 10_000


class Cluster(Protocol):
    """Brokers on this machine; `pids` and their descendants are all of their processes."""

    name: str
    bootstrap: str
    pids: list[int]
    launched: float

    def wait_ready(self) -> None: ...

    def check_alive(self) -> None: ...

    def pid_of(self, broker: int) -> int: ...

    def start_again(self, broker: int) -> None: ...

    def stop(self) -> float: ...


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses, nor is given by the kernel to clients.

    Kafka takes its ports seconds later: until then any connection on this machine could get one.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    while True:
        port = random.randrange(_PORT_MIN, max(int(given[0]), 2 * _PORT_MIN) - count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for number in range(count):
                held.enter_context(socket.socket()).bind((HOST, port + number))
            return port


def addresses(port: int, count: int) -> str:
    """What clients are told first."""
    return ",".join(f"{HOST}:{port + number}" for number in range(count))


def command() -> str:
    """The console script beside this interpreter, else the one on the path."""
    beside = Path(sys.executable).with_name("tidelog")
    found = str(beside) if beside.exists() else shutil.which("tidelog")
    if found is None:
        raise SystemExit("tidelog is not installed: pip install -e .")
    return found


def dying_with_us(words: Sequence[str]) -> list[str]:
    """The command, asked by the kernel to end when this program does, by whatever signal."""
    found = shutil.which("setpriv")
    return [*([found, "--pdeathsig", "TERM"] if found else []), *words]


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """A signal to end is an exception here, so that all that was started is stopped."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def environment() -> dict[str, str]:
    """Ours, but with byte code kept: a start that compiles every module measures the compiler."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Tidelog:
    """One `tidelog up` in the foreground, in a folder of its own.

    With `data`, a folder that stays: the next one there starts with what this one left.
    """

    name = "tidelog"

    def __init__(
        self,
        *settings: str,
        brokers: int = 1,
        data: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._data = [] if data is None else ["--data", str(data)]
        self._said = Path(self._folder.name) / "said"
        port = free_ports(brokers)
        self.bootstrap = addresses(port, brokers)
        words = [command(), "up", "--base-port", str(port), "--json"]
        words += ["--brokers", str(brokers), *options]
        words += self._data or ["--ephemeral"]
        every = [*(f"{key}={value}" for key, value in SETTINGS.items()), *settings]
        words += [word for setting in every for word in ("--set", setting)]
        self.launched = time.monotonic()
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                dying_with_us(words),
                cwd=self._folder.name,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=said,
            )
        self.pids = [self._process.pid]

    def wait_ready(self) -> None:
        """Until `up` has printed its document."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_PATIENCE_S)
            self.check_alive()
        json.loads(line)

    def check_alive(self) -> None:
        """Ends this program with what `up` said, where it has ended."""
        if self._process.poll() is not None:
            raise SystemExit(self._said.read_text(encoding="utf-8").strip() or "tidelog up ended")

    def ask(self, *words: str) -> str:
        """What a command says of this cluster."""
        done = subprocess.run(
            [command(), *words, *self._data],
            cwd=self._folder.name,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def pid_of(self, broker: int) -> int:
        """Of the life it has now."""
        return self._pid("broker", broker)

    def coordinator_pid(self) -> int:
        """Of the one that leads now."""
        return int(json.loads(self.ask("status", "--json"))["controller"]["pid"])

    def transaction_coordinator_pid(self) -> int:
        return self._pid("transaction-coordinator", 0)

    def _pid(self, role: str, process_id: int) -> int:
        rows = json.loads(self.ask("status", "--json"))["processes"]
        pids = {(row["role"], row["id"]): row["pid"] for row in rows}
        return int(pids[role, process_id])

    def start_again(self, broker: int) -> None:
        """One that was killed."""
        self.ask("broker", "start", str(broker))

    def stop(self) -> float:
        """Ask for a clean end; the seconds it took."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_PATIENCE_S)
        seconds = time.monotonic() - began
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()
        return seconds


@contextlib.contextmanager
def running(*settings: str, brokers: int = 1, options: Sequence[str] = ()) -> Iterator[Tidelog]:
    """A cluster that takes clients; `options` are of `tidelog up`."""
    cluster = Tidelog(*settings, brokers=brokers, options=options)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()
