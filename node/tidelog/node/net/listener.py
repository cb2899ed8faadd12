"""The listening socket of a broker and all its connections. A shell."""

import errno
import socket
import time
from itertools import islice
from typing import Final

from msgspec import Struct

from tidelog.kernel import limits
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.instant import Instant, ms
from tidelog.node.net.connection import Connection, NetworkParts

_ACCEPTS_PER_TURN: Final = 64
_BACKLOG: Final = 1024
_SWEEP_S_MAX: Final = 10.0
_OUT_OF_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ACCEPT_PAUSE_S: Final = 0.1
_RELIEVE_S: Final = 1.0
_SILENT_NS_MAX: Final = ms(limits.SILENT_CONNECTION_MS)


class ListenerLimits(Struct, frozen=True):
    connections_max: int
    idle_ms_max: int


class Listener:
    """Accepts clients, closes idle ones.

    Invariant: nobody comes in while `connections_max` are in. Who comes then takes the place of the
    oldest connection that has never sent a request, if it had time for that; else it is turned away
    at once. So connections that nobody uses shut nobody out.
    While it is suspended nobody is in and nobody comes in.
    """

    def __init__(self, parts: NetworkParts, bounds: ListenerLimits) -> None:
        self._parts = parts
        self._bounds = bounds
        self._sock: socket.socket | None = None
        self._place = ("", 0)
        self._suspended = False
        self.connections: set[Connection] = set()
        self._new: dict[Connection, None] = {}
        """Of these none is known to have asked anything, in the order in which they came."""
        self._sweep_s = min(_SWEEP_S_MAX, bounds.idle_ms_max / 2000)
        parts.received.on_scarce = self._watch_memory
        self._watching = False

    def bound(self, bounds: ListenerLimits) -> None:
        """Other limits from now on; who is in may stay."""
        self._bounds = bounds

    def listen(self, host: str, port: int) -> None:
        """Bind the port the supervisor holds for us; clients queue until they are accepted.

        SO_REUSEPORT is what the supervisor's socket asks for; other users are refused with it, too.
        """
        self._place = (host, port)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.settimeout(0)
        try:
            sock.bind((host, port))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            raise CannotStartError(
                f"cannot listen on {host}:{port} ({error.strerror}); "
                "end what uses the port, or choose another with --base-port"
            ) from error
        self._sock = sock

    def accept(self) -> None:
        """Let clients in."""
        self._let_in()
        self._parts.loop.call_later(self._sweep_s, self._sweep)

    def suspend(self) -> None:
        """End every connection; who comes now is refused at once, and may ask another broker."""
        if self._sock is not None:
            self._suspended = True
            self._drop_socket()
        self._end_connections()

    def resume(self) -> None:
        """Let clients in again, on the same port."""
        if self._suspended:
            self._suspended = False
            self._listen_anew()

    def stop_accepting(self) -> None:
        """For good."""
        self._suspended = False
        self._drop_socket()

    def close(self) -> None:
        self.stop_accepting()
        self._end_connections()

    def _listen_anew(self) -> None:
        self._drop_socket()
        self.listen(*self._place)
        self._let_in()

    def _let_in(self) -> None:
        assert self._sock is not None
        self._parts.loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def _drop_socket(self) -> None:
        if self._sock is not None:
            self._parts.loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _end_connections(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _on_acceptable(self) -> None:
        if self._parts.is_lost():
            return
        for _ in range(_ACCEPTS_PER_TURN):
            if self._sock is None:
                return
            try:
                sock, peer = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._not_accepted(error)
                return
            self._take(sock, peer)

    def _not_accepted(self, error: OSError) -> None:
        if error.errno in _OUT_OF_FILES:
            self._pause_accepting()
        elif error.errno == errno.EINVAL:
            # The supervisor took us for hung and shut the socket; we move, and were not given up.
            self._listen_anew()

    def _take(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        if len(self.connections) >= self._bounds.connections_max and not self._make_room():
            sock.close()
            self._parts.log_refused(f"{peer[0]}:{peer[1]}", "max.connections is reached")
            return
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parts.stats.accepted += 1
        address = f"{peer[0]}:{peer[1]}"
        connection = Connection(self._parts, sock, address, self._on_closed)
        self.connections.add(connection)
        self._new[connection] = None

    def _on_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._new.pop(connection, None)

    def _make_room(self) -> bool:
        """End the oldest connection that has never asked anything, for one that comes."""
        for connection in list(islice(self._new, _ACCEPTS_PER_TURN)):
            if not connection.has_asked:
                if time.monotonic_ns() - connection.opened < _SILENT_NS_MAX:
                    return False
                self._parts.log_refused(connection.address, "it sent no request, others came")
                connection.abort()
                return True
            del self._new[connection]
        return False

    def _pause_accepting(self) -> None:
        """Out of descriptors: keep those who are in, look again soon."""
        assert self._sock is not None
        self._parts.loop.remove_reader(self._sock.fileno())
        self._parts.loop.call_later(_ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._sock is not None:
            self._let_in()

    def _watch_memory(self) -> None:
        """Somebody waits for memory: until nobody does, end requests that do not come."""
        if not self._watching:
            self._watching = True
            self._parts.loop.call_later(_RELIEVE_S, self._relieve)

    def _relieve(self) -> None:
        self._watching = False
        received = self._parts.received
        stalled = set(received.relieve(Instant(time.monotonic_ns())))
        for connection in [one for one in self.connections if one.account in stalled]:
            self._parts.log_refused(connection.address, "its request took too long to come")
            connection.abort()
        if received.is_scarce:
            self._watch_memory()

    def _sweep(self) -> None:
        """Close who was idle too long, give memory of the quiet ones back."""
        now = time.monotonic_ns()
        idle_ns_max = ms(self._bounds.idle_ms_max)
        relax_ns = ms(self._sweep_s * 1000)
        self._new = {one: None for one in self._new if not one.has_asked}
        for connection in list(self.connections):
            quiet_ns = now - connection.last_progress
            if quiet_ns > idle_ns_max:
                connection.abort()
            elif quiet_ns > relax_ns:
                connection.relax()
        if self._sock is not None or self._suspended:
            self._parts.loop.call_later(self._sweep_s, self._sweep)
