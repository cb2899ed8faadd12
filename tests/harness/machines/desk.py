"""A supervisor's socket, answers and plan without processes: what is asked for is so at once."""

import json
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidelog.kernel.ids import Incarnation
from tidelog.kernel.instant import Instant, s
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor import plan
from tidelog.tools.supervisor.answers import Answers
from tidelog.tools.supervisor.plan import Name, Plan
from tidelog.tools.supervisor.service import Document, Service

BROKERS = tuple(Name(Role.BROKER, broker) for broker in range(3))
NAMES = (Name(Role.COORDINATOR, 0), *BROKERS, Name(Role.TRANSACTION_COORDINATOR, 0))


class ToyDesk:
    """The plan's shell: processes are numbers."""

    def __init__(self) -> None:
        self.plan = Plan.of(NAMES, restart=False, next_incarnation=Incarnation(1))
        self.stopped: set[Name] = set()
        self.dying: set[Name] = set()
        """Killed by somebody else; their ends are not noted yet."""
        self.lost: list[int] = []
        """Brokers that lost power, in order."""
        self.asked: list[str] = []
        self.status_fails_with: Exception | None = None
        self.time = Instant(s(1))
        self._pids = 100
        self.take(plan.Ticked())

    def now(self) -> Instant:
        return self.time

    def take(self, event: plan.Event) -> None:
        for action in self.plan.step(self.now(), event):
            match action:
                case plan.Spawn(name):
                    self._pids += 1
                    self.take(plan.Spawned(name, self._pids))
                    self.take(plan.BecameReady(name))
                case plan.Send(name, number):
                    self.send(name, number)
                case _:
                    pass

    def add_broker(self) -> Name:
        name = Name(Role.BROKER, 1 + max(one.process_id for one in self.plan.processes))
        self.take(plan.AddAsked(name))
        return name

    def remove_broker(self, name: Name) -> None:
        self.take(plan.RemoveAsked(name))

    def send(self, name: Name, number: signal.Signals) -> None:
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self.stopped.discard(name)
            self.take(plan.Ended(name, -number))
        elif number == signal.SIGSTOP:
            self.stopped.add(name)
        else:
            self.stopped.discard(name)

    def lose_power(self, names: Sequence[Name]) -> None:
        for name in names:
            self.lost.append(name.process_id)
            self.take(plan.PowerLost(name))

    def is_stopped(self, name: Name) -> bool:
        return name in self.stopped

    def is_ending(self, name: Name) -> bool:
        return name in self.dying

    def status(self) -> dict[str, Any]:
        self.asked.append("status")
        if self.status_fails_with is not None:
            raise self.status_fails_with
        return {"state": "running"}

    def told_so_far(self) -> list[Document]:
        self.asked.append("watch")
        return [{"event": "started", "id": name.process_id} for name in self.plan.processes]

    def end(self, *, force: bool, sync: bool) -> int:
        del force, sync
        return 1


class Office:
    """The socket with its answers, turned by hand."""

    def __init__(self, folder: Path, is_child: Callable[[int], bool] = lambda _: False) -> None:
        self.desk = ToyDesk()
        self.answers = Answers(self.desk)
        self._selector = selectors.DefaultSelector()
        self._path = str(folder / "s")
        self.service = Service(
            self._path, self._selector, self.answers.request, is_child, self.desk.now
        )
        self._peers: list[socket.socket] = []

    def turn(self) -> None:
        """Until nothing is left to do."""
        self.service.look()
        while (happened := self._selector.select(0)) or self.service.is_behind:
            for key, mask in happened:
                key.data(mask)
            self.answers.look()
            self.service.look()

    def connect(self) -> socket.socket:
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(0)
        stream.connect(self._path)
        self._peers.append(stream)
        return stream

    def send(self, stream: socket.socket, data: bytes) -> None:
        """All of it, unless the connection ends before."""
        while data:
            try:
                data = data[stream.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return
            self.turn()

    def heard(self, stream: socket.socket) -> list[dict[str, Any]]:
        """What a peer has been sent by now, and `{"ended": True}` where its connection ended."""
        self.turn()
        data = b""
        ended: list[dict[str, Any]] = []
        while True:
            try:
                chunk = stream.recv(65_536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                ended = [{"ended": True}]
                break
            data += chunk
            self.turn()
        return [json.loads(line) for line in data.splitlines()] + ended

    def close(self) -> None:
        for stream in self._peers:
            stream.close()
        self.service.close()
        self._selector.close()
