"""The shell: TCP connections to brokers, all in one thread. The only sockets of the clients.

What goes over a connection is a `Session`'s business; here bytes are moved and time is read.
"""

import errno
import itertools
import os
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, cast

from tidelog.clients.asking import Address, Ask, Cause, Features, Lost, Outcome, Ticket
from tidelog.clients.session import Session
from tidelog.clients.settings import ConnectionSettings
from tidelog.kernel.instant import Instant, s

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECES_PER_WRITE_MAX = 512
"""Below the system's IOV_MAX."""


class _Connection:
    """One broker's socket and session; after a failure a new connection takes its place."""

    def __init__(self, now: Instant, address: Address, settings: ConnectionSettings) -> None:
        self.address = address
        self.session = Session(now, address, settings)
        self.targets: Iterator[Any] = iter(())
        self.sock: socket.socket | None = None
        self.connected = False
        self.connect_by = Instant(now + settings.connect_timeout_ns)
        self.output: list[memoryview] = []
        self.refused = "no address to connect to"
        self.used = now
        """When it last carried a request or a part of an answer."""

    def deadline(self) -> Instant | None:
        return self.session.deadline() if self.connected else self.connect_by


class Transport:
    """A `Network` over real sockets."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._selector = selectors.DefaultSelector()
        self._connections: dict[Address, _Connection] = {}
        self._outcomes: list[Outcome] = []
        self._tickets = itertools.count()
        self.features = Features()

    def now(self) -> Instant:
        return Instant(time.monotonic_ns())

    def ask(self, to: Address, ask: Ask) -> Ticket:
        ticket = Ticket(next(self._tickets))
        now = self.now()
        connection = self._usable(now, to)
        if connection is None:
            connection = self._connections[to] = _Connection(now, to, self._settings)
            self._resolve(connection)
        connection.used = now
        if connection.session.failed is not None:
            self._outcomes.append(Lost(ticket, Cause.UNREACHABLE, connection.session.failed))
            return ticket
        self._outcomes += connection.session.ask(now, ticket, ask)
        self._write(connection)
        return ticket

    def poll(self, until: Instant) -> list[Outcome]:
        while True:
            now = self.now()
            self._expire(now)
            wait = 0.0 if self._outcomes else max(0, self._wake(until) - now) / s(1)
            for key, events in self._selector.select(wait):
                self._serve(key.data, events)
            if self._outcomes or self.now() >= until:
                outcomes, self._outcomes = self._outcomes, []
                return outcomes

    def close(self) -> None:
        """Hang up everywhere; open questions are forgotten."""
        for connection in list(self._connections.values()):
            self._hang_up(connection)
        self._connections.clear()
        self._selector.close()

    def _usable(self, now: Instant, to: Address) -> _Connection | None:
        """The connection to a broker, unless a request on it would be lost for certain.

        A broker closes connections that are idle for long, and all of them when it restarts. A
        client that asked nothing meanwhile has not noticed, and some requests may not be repeated.
        """
        connection = self._connections.get(to)
        if connection is None or not connection.connected or not connection.session.idle:
            return connection
        if now - connection.used < self._settings.idle_ns_max and not _was_closed(connection):
            return connection
        self._hang_up(connection)
        del self._connections[to]
        return None

    def _wake(self, until: Instant) -> Instant:
        deadlines = (connection.deadline() for connection in self._connections.values())
        return min((one for one in deadlines if one is not None and one < until), default=until)

    def _expire(self, now: Instant) -> None:
        for connection in list(self._connections.values()):
            if not connection.connected and now >= connection.connect_by:
                self._fail(connection, Cause.TIMED_OUT, "no connection in time")
            elif connection.connected:
                self._outcomes += connection.session.expire(now)
                self._drop_failed(connection)

    def _resolve(self, connection: _Connection) -> None:
        host, port = connection.address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            self._fail(connection, Cause.UNREACHABLE, f"{host!r} is not a known host")
            return
        connection.targets = iter(found)
        self._connect_next(connection)

    def _connect_next(self, connection: _Connection) -> None:
        """Try the host's addresses one after the other: "localhost" is often two of them."""
        for family, kind, protocol, _, target in connection.targets:
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as failure:
                connection.refused = _text(failure)
                continue
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            error = sock.connect_ex(target)
            if error not in {0, errno.EINPROGRESS}:
                connection.refused = os.strerror(error).lower()
                sock.close()
                continue
            connection.sock = sock
            self._selector.register(sock, selectors.EVENT_WRITE, connection)
            return
        self._fail(connection, Cause.UNREACHABLE, connection.refused)

    def _serve(self, connection: _Connection, events: int) -> None:
        if not connection.connected:
            self._finish_connect(connection)
            return
        if events & selectors.EVENT_WRITE:
            self._write(connection)
        if events & selectors.EVENT_READ and connection.session.failed is None:
            self._read(connection)

    def _finish_connect(self, connection: _Connection) -> None:
        sock = connection.sock
        assert sock is not None
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            connection.refused = os.strerror(error).lower()
            self._hang_up(connection)
            self._connect_next(connection)
            return
        connection.connected = True
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        """Write what the socket takes; what it does not take waits for its event."""
        connection.output += [_view(one) for one in connection.session.take_output() if len(one)]
        if not connection.connected:
            return
        sock = connection.sock
        assert sock is not None
        try:
            while connection.output:
                written = sock.sendmsg(connection.output[:PIECES_PER_WRITE_MAX])
                _drop_written(connection.output, written)
        except BlockingIOError:
            self._selector.modify(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        except OSError as error:
            self._fail(connection, Cause.UNREACHABLE, _text(error))
        else:
            self._selector.modify(sock, selectors.EVENT_READ, connection)
            self._outcomes += connection.session.written()

    def _read(self, connection: _Connection) -> None:
        """Read until nothing is left, or an outcome is there: then its receiver goes first."""
        sock = connection.sock
        assert sock is not None
        session = connection.session
        try:
            while session.failed is None:
                count = sock.recv_into(session.buffer())
                if count == 0:
                    self._fail(connection, Cause.UNREACHABLE, "the connection was closed")
                    return
                connection.used = self.now()
                outcomes = session.received(connection.used, count)
                if session.features.epoch > self.features.epoch:
                    self.features = session.features
                if outcomes:
                    self._outcomes += outcomes
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(connection, Cause.UNREACHABLE, _text(error))
            return
        self._drop_failed(connection)
        if session.failed is None:
            self._write(connection)

    def _fail(self, connection: _Connection, cause: Cause, detail: str) -> None:
        self._outcomes += connection.session.fail(cause, detail)
        self._drop_failed(connection)

    def _drop_failed(self, connection: _Connection) -> None:
        if connection.session.failed is not None:
            self._hang_up(connection)
            self._connections.pop(connection.address, None)

    def _hang_up(self, connection: _Connection) -> None:
        if connection.sock is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()
            connection.sock = None


def _was_closed(connection: _Connection) -> bool:
    """Whether the broker has closed the connection; nothing that it sent is taken."""
    sock = connection.sock
    assert sock is not None
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _view(piece: object) -> memoryview:
    """A piece that is no bytes cannot be in what a client sends."""
    return memoryview(cast("bytes", piece)).cast("B")


def _drop_written(output: list[memoryview], written: int) -> None:
    done = 0
    while done < len(output) and written >= len(output[done]):
        written -= len(output[done])
        done += 1
    del output[:done]
    if written:
        output[0] = output[0][written:]


def _text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
