"""The supervisor's word on brokers: who started, who died, who hangs. JSON lines. (shell)"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Final

from tidelog.coordinator.controller.requests import BrokerLost, BrokerStarted
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.runtime.process import EventLog

_ASK: Final = b'{"do": "watch"}\n'
_AGAIN_S: Final = 0.1
_LINE_BYTES_MAX: Final = 64 * 1024
_RECEIVE_BYTES: Final = 16 * 1024
_LOST: Final = frozenset({"died", "stopped", "hung"})

Heard = BrokerStarted | BrokerLost


def heard(line: bytes) -> Heard | None:
    """What a line says of a broker; None where it is about something else."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("role") != "broker":
        return None
    broker, incarnation = said.get("id"), said.get("incarnation")
    if not isinstance(broker, int) or not isinstance(incarnation, int):
        return None
    match said.get("event"):
        case "started":
            return BrokerStarted(BrokerId(broker), Incarnation(incarnation))
        case event if event in _LOST:
            return BrokerLost(BrokerId(broker), Incarnation(incarnation))
        case _:
            return None


class Watch:
    """Connected as long as it is open; each time it connects it is told everything anew."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        on_heard: Callable[[Heard], None],
        log: EventLog,
    ) -> None:
        self._loop = loop
        self._path = path
        self._on_heard = on_heard
        self._log = log
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._again: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._again = None
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            stream.connect(self._path)
            stream.sendall(_ASK)
        except OSError as error:
            stream.close()
            self._log.warning("watch_failed", reason=str(error))
            self._later()
            return
        self._socket = stream
        self._received.clear()
        self._loop.add_reader(stream.fileno(), self._on_readable, stream)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._drop()

    def _later(self) -> None:
        self._again = self._loop.call_later(_AGAIN_S, self.open)

    def _drop(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_readable(self, stream: socket.socket) -> None:
        try:
            chunk = stream.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._drop()
            self._later()
            return
        self._received += chunk
        *lines, rest = self._received.split(b"\n")
        self._received = rest if len(rest) <= _LINE_BYTES_MAX else bytearray()
        for line in lines:
            said = heard(bytes(line))
            if said is not None:
                self._log.info("heard", line=bytes(line))
                self._on_heard(said)
