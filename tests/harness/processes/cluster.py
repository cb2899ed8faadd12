"""Starts real clusters for tests, each in its own folder on free ports, and sees that they leave
nothing behind: no process, no shared memory, no port, no folder of sockets.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from harness.processes import commands
from harness.processes.command_server import MARK, Request
from harness.processes.commands import TIDELOG, Finished
from tidelog.kernel.launch import board_name
from tidelog.kernel.limits import METADATA_APPLY_WAIT_MS
from tidelog.node.ipc.board import Board, memory_of_run, remove_memory_of_run
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.supervisor import proc, registry
from tidelog.tools.supervisor.ask import Link
from tidelog.tools.supervisor.folder import run_in
from tidelog.tools.supervisor.runs import Run

STAND_INS = ("-m", "harness.processes.stand_ins")
WAIT_S = 45.0
"""Much longer than it takes: on a machine with other work a moment becomes half a minute."""
LISTENS = "0A"
"""In `/proc/net/tcp`."""
START_WITHIN_S = 60.0
LOOK_EVERY_S = 0.005


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Look again and again; AssertionError after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for this: {what}"
        time.sleep(LOOK_EVERY_S)


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """One after the other; who has followed another one into death by then needs no signal."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def open_files(pid: int) -> list[str]:
    """What a process holds open; it may let go of one while it is looked at."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(str(entry.readlink()))
    return names


KEEPS_OLD_RECORDS: Mapping[str, str] = {"log.initial.task.delay.ms": "86400000"}
"""Many tests write records of long ago: retention waits, but where a test asks for it."""


@dataclass(slots=True)
class Cluster:
    """One cluster: `with Cluster(folder) as cluster` starts it and ends it."""

    folder: Path
    """The current folder of every command; the data is in `.tidelog/default` under it."""
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    program: Sequence[str] = TIDELOG
    environment: Mapping[str, str] = field(default_factory=dict)
    as_program: bool = False
    """Whether Python is started for `up`, as a shell does: for tests of the processes themselves.
    Those that come from the command server have imported more than they need."""
    bootstrap: str = ""
    runs: list[Run] = field(default_factory=list)
    _topics: int = 0

    @property
    def data(self) -> Path:
        return Path(self.runs[-1].data_dir) if self.runs else self.folder / ".tidelog/default"

    # -- commands ---------------------------------------------------------------------------------

    def variables(self) -> dict[str, str]:
        """The environment of commands, with the mark by which their processes are found."""
        return {**commands.variables(), MARK: str(self.folder), **self.environment}

    @contextmanager
    def open(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; killed at the end if the test has not ended it."""
        process = subprocess.Popen(
            [sys.executable, *self.program, *words],
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def command(self, *words: str, text: str | None = None, timeout_s: float = 60.0) -> Finished:
        """A command, to its end."""
        request = Request(words, str(self.folder), self.variables())
        if self._is_served(words):
            return commands.run(request, text or "", timeout_s)
        return commands.run_program(self.program, request, text or "", timeout_s)

    def _is_served(self, words: Sequence[str]) -> bool:
        """Another program makes processes of its own, which all other commands take as they are."""
        if words[:1] == ("up",):
            return self.program == TIDELOG and not self.as_program
        return self.program in {TIDELOG, STAND_INS}

    def done(self, *words: str, text: str | None = None) -> Finished:
        """A command that must succeed."""
        finished = self.command(*words, text=text)
        assert finished.code == 0, finished
        return finished

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        words = ["up", "--detach", "--json", *self.options]
        if "--base-port" not in self.options:
            words += ["--base-port", "0"]
        kept = KEEPS_OLD_RECORDS if self.program == TIDELOG else {}
        for name, value in {**kept, **self.settings}.items():
            words += ["--set", f"{name}={value}"]
        words += ["--brokers", str(self.brokers)]
        finished = self.command(*words, timeout_s=START_WITHIN_S)
        assert finished.code == 0, (finished, self.logs())
        document = finished.document
        self.bootstrap = document["bootstrap"]
        run = run_in(Path(document["data"]))
        assert run is not None
        self.runs.append(run)

    def stop(self, *words: str) -> None:
        self.done("down", *words)

    def kill_everything(self) -> None:
        """SIGKILL to all at one moment; no process has a chance to clean up."""
        pids = self.pids()
        send_all(pids, signal.SIGSTOP)  # so that none sees another die
        send_all(pids, signal.SIGKILL)
        self.until_dead(pids)

    def until_dead(self, pids: Iterable[int]) -> None:
        """These, which were killed, and all others: whoever is ending has no environment any more,
        but its locks and ports for a moment longer."""
        until(lambda: not self.pids() and all(map(proc.is_gone, pids)), "all processes are dead")

    def pids(self) -> list[int]:
        """Every process that any command of this cluster left, by the mark in its environment."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in variables and not proc.is_gone(int(entry.name)):
                found.append(int(entry.name))
        return sorted(found)

    def logs(self) -> str:
        """All of them, for the message of a failed test."""
        folder = self.data / "logs"
        return "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))

    def assert_nothing_is_left(self) -> None:
        self.assert_nothing_runs()
        assert run_in(self.data) is None

    def assert_nothing_runs(self) -> None:
        """Nor holds anything of the machine, though the next start may find that one ran."""
        until(lambda: not self.pids(), f"no process is left of {self.folder}")
        for run in self.runs:
            left = memory_of_run(run.run_id)
            assert left == [], (left, self.logs())
            assert not Path(run.runtime_dir).exists()
            for address in run.bootstrap.split(","):
                assert not _is_listening(address) or _is_of_another_test(address), address

    def _clean_up(self) -> None:
        send_all(self.pids(), signal.SIGKILL)
        until(lambda: not self.pids(), "killed processes are gone")
        for run in self.runs:
            remove_memory_of_run(run.run_id)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.pids():
                self.stop("--force")
            if kind is None:
                self.assert_nothing_is_left()
        finally:
            self._clean_up()
            registry.forget(self.data)

    # -- facts ------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """As `tidelog status --json` has it, asked without a process of its own."""
        with Link.to(self.data) as link:
            document: dict[str, Any] = link.ask("status")["status"]
        return document

    def process(self, role: str, process_id: int = 0) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.status()["processes"]
        return next(row for row in rows if (row["role"], row["id"]) == (role, process_id))

    def broker_pid(self, broker: int) -> int:
        pid = self.process("broker", broker)["pid"]
        assert isinstance(pid, int), f"broker {broker} is not running"
        return pid

    def until_heard(self) -> None:
        until_heard(self.runs[-1])

    @contextmanager
    def known_when_answered(self) -> Iterator[None]:
        """For one request that changes the metadata: its answer waits until every broker knows, but
        not for long. Only where it took that long they are waited for here."""
        began = time.monotonic()
        yield
        if time.monotonic() - began >= METADATA_APPLY_WAIT_MS / 1_000:
            self.until_heard()

    def broker_rss_bytes(self, broker: int) -> int:
        size = self.process("broker", broker)["rss_bytes"]
        assert isinstance(size, int)
        return size

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """A topic nobody else uses; its name."""
        from harness.clients.raw_socket import RawClient  # noqa: PLC0415 -- most tests make no topics
        from tidelog.wire.messages import k19_create_topics as k19  # noqa: PLC0415 -- as above

        self._topics += 1
        name = name or f"topic-{self._topics}-{os.urandom(3).hex()}"
        rows = [
            k19.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ]
        topic = k19.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=rows
        )
        with RawClient(self.bootstrap) as client:
            request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = client.ask(k19.API, 7, request).topics[0]
        assert answer.error_code == 0, answer
        return name


def until_heard(run: Run) -> None:
    """Every broker that runs is in the cluster and has heard of all that was decided, also of who
    does not run: the supervisor knows of a death, and one broker of what it was asked for, before
    the others do."""
    with Board.open(board_name(run.run_id)) as board:
        until(lambda: _has_heard(board, Path(run.data_dir)), "all brokers have heard")


def _has_heard(board: Board, data: Path) -> bool:
    image = open_folder(data).image
    slots = {one: board.read_slot(slot_of(Role.BROKER, one)) for one in image.brokers}
    running = {
        broker: slot[Word.METADATA_OFFSET]
        for broker, slot in slots.items()
        if slot is not None and _runs(slot[Word.PID])
    }
    unfenced = set(image.alive())
    return running.keys() == unfenced and all(at >= image.offset for at in running.values())


def _runs(pid: int) -> bool:
    return not proc.is_gone(pid) and not proc.is_stopped(pid)


def _is_of_another_test(address: str) -> bool:
    """The kernel may have given the port to the next cluster that wanted one."""
    port = int(address.rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port
    }
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"{MARK}=".encode() in (entry / "environ").read_bytes():
                files = (entry / "fd").iterdir()
                if sockets & {str(one.readlink()) for one in files}:
                    return True
    return False


def _is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker that many tests share: make topics of your own, and leave it as it is."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def fresh_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One broker of one's own, to be killed and stopped at will."""
    with Cluster(tmp_path) as running:
        yield running
