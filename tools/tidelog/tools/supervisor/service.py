"""The supervisor's Unix socket: JSON lines in, JSON lines out, for this user only, all bounded."""

import json
import os
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CONNECTIONS_MAX = 64
LINE_BYTES_MAX = 64 * 1024
UNREAD_BYTES_MAX = 1024 * 1024
_RECEIVE_BYTES = 16 * 1024
_CREDENTIALS = struct.Struct("@3i")

Document = Mapping[str, Any]


class Connection:
    """One peer. While an answer is due its next line waits."""

    def __init__(self, stream: socket.socket, service: "Service") -> None:
        self.stream = stream
        self.watches = False
        self.is_open = True
        self._service = service
        self._received = bytearray()
        self._unsent = bytearray()
        self._answer_due = False

    def receive(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self.is_open:
            self._read()

    def _read(self) -> None:
        try:
            chunk = self.stream.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return
        self._received += chunk
        self._take_lines()

    def _take_lines(self) -> None:
        while self.is_open and not self._answer_due:
            line, newline, rest = self._received.partition(b"\n")
            if not newline:
                break
            self._received = rest
            self._answer_due = True
            self._service.take(self, bytes(line))
        if len(self._received) > LINE_BYTES_MAX:
            self.close()

    def answer(self, document: Document) -> None:
        """The answer to the line taken last; then the next line is looked at."""
        assert self._answer_due
        self._answer_due = False
        self.send(document)
        self._take_lines()

    def send(self, document: Document) -> None:
        if not self.is_open:
            return
        self._unsent += json.dumps(document).encode() + b"\n"
        self._flush()
        if len(self._unsent) > UNREAD_BYTES_MAX:
            self.close()  # it does not read; it may come again

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self.stream.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._service.want_write(self, wanted=bool(self._unsent))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._service.forget(self)
            self.stream.close()


class Service:
    """Listens; hands each request to `on_request`, which answers now or later."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        on_request: Callable[[Connection, Document], None],
    ) -> None:
        self._selector = selector
        self._on_request = on_request
        self.connections: set[Connection] = set()
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        Path(path).chmod(0o600)
        self._listener.listen(CONNECTIONS_MAX)
        self._listener.settimeout(0)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def take(self, connection: Connection, line: bytes) -> None:
        """What is no JSON object is answered with a sentence like any other wrong request."""
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        self._on_request(connection, document if isinstance(document, dict) else {})

    def tell(self, document: Document) -> None:
        """A line for everyone who watches."""
        for connection in [c for c in self.connections if c.watches]:
            connection.send(document)

    def want_write(self, connection: Connection, *, wanted: bool) -> None:
        if connection.is_open:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self._selector.modify(connection.stream, mask, connection.receive)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._selector.unregister(connection.stream)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        self._selector.unregister(self._listener)
        self._listener.close()

    def close_inherited(self) -> None:
        """In a child: the parent's selector is an epoll shared with it, and must not be changed."""
        self._listener.close()
        for connection in self.connections:
            connection.stream.close()

    def _accept(self, _mask: int) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return
        _, uid, _ = _CREDENTIALS.unpack(
            stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid not in {os.geteuid(), 0} or len(self.connections) >= CONNECTIONS_MAX:
            stream.close()
            return
        stream.settimeout(0)
        connection = Connection(stream, self)
        self.connections.add(connection)
        self._selector.register(stream, selectors.EVENT_READ, connection.receive)
