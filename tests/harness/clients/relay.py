"""A relay between clients and a broker that can lose the answer to a Produce request.

The broker has appended by then: what the client sends again must not be appended again. Clients
learn the broker's address from its answers, so the relay puts its own in their place; both have
the same length.
"""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

PRODUCE = 0
SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhi")
"""Of a request: key, version, correlation id."""


class Relay:
    """Listens on a port of its own while it is open."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server((host, 0))
        own_port: int = self._listener.getsockname()[1]
        self.bootstrap = f"{host}:{own_port}"
        self.lost = 0
        """Answers lost so far."""
        self._to_lose = 0
        self._hold_after_loss = False
        self._holding = False
        self._lock = threading.Lock()
        self._theirs = host.encode() + SIZE.pack(int(port))
        self._ours = host.encode() + SIZE.pack(own_port)
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_next_answer(self, *, hold: bool = False) -> None:
        """The next answer to a Produce request ends its connection instead of arriving.

        With `hold` all connections end, and no other gets through until `release`.
        """
        with self._lock:
            self._to_lose += 1
            self._hold_after_loss = hold

    def release(self) -> None:
        with self._lock:
            self._holding = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self._listener)
        self._threads[0].join()
        for wire in self._sockets:
            _end(wire)
        for thread in self._threads[1:]:
            thread.join()
        for wire in (self._listener, *self._sockets):
            wire.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = self._broker()
            if broker is None:
                client.close()
                continue
            with self._lock:
                self._sockets += [client, broker]
            asked: dict[int, int] = {}
            for work in (self._pass_requests, self._pass_answers):
                thread = threading.Thread(target=work, args=(client, broker, asked))
                self._threads.append(thread)
                thread.start()

    def _broker(self) -> socket.socket | None:
        """A connection to it, unless it is down or to be kept from clients."""
        if self._holding:
            return None
        try:
            return socket.create_connection(self._upstream)
        except OSError:
            return None

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, int]
    ) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                key, _version, correlation = HEAD.unpack_from(frame, SIZE.size)
                asked[correlation] = key
                broker.sendall(frame)
        _end(broker)

    def _pass_answers(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, int]
    ) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(broker):
                (correlation,) = SIZE.unpack_from(frame, SIZE.size)
                if asked.pop(correlation) == PRODUCE and self._is_lost():
                    break
                client.sendall(frame.replace(self._theirs, self._ours))
        _end(client)
        _end(broker)

    def _is_lost(self) -> bool:
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            if self._hold_after_loss:
                self._holding = True
                for wire in self._sockets:
                    _end(wire)
            self.lost += 1
            return True


def _frame(wire: socket.socket) -> bytes:
    """One frame with its size; nothing at the end of the connection."""
    size = _exactly(wire, SIZE.size)
    return size + _exactly(wire, SIZE.unpack(size)[0]) if size else b""


def _exactly(wire: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = wire.recv(count - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _end(wire: socket.socket) -> None:
    """Wake whoever reads from it; the relay closes it when all are done."""
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)
