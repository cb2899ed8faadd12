"""The supervisor's Unix socket: JSON lines in, JSON lines out, for this user only, all bounded.

The cluster's own processes have places of their own: a coordinator that starts again must hear of
deaths, however many commands are connected. When all other places are taken, the connection that
has asked nothing for the longest time is ended, if it is idle; else the new one is turned away with
a sentence.
"""

import json
import os
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidelog.kernel.instant import Instant, ms, s
from tidelog.node.runtime.process import EventLog

CONNECTIONS_MAX = 64
CHILDREN_CONNECTIONS_MAX = 32
LINE_BYTES_MAX = 64 * 1024
UNREAD_BYTES_MAX = 1024 * 1024
LINES_PER_TURN_MAX = 16
"""Of one connection; what else happened comes before its next lines."""
IDLE = s(10)
"""A connection that asked nothing for this long may have to make room for another one."""
ACCEPT_PAUSE = ms(100)
_RECEIVE_BYTES = 16 * 1024
_CREDENTIALS = struct.Struct("@3i")
_NO_ROOM = {
    "ok": False,
    "error": f"the supervisor has {CONNECTIONS_MAX} connections already: try again in a moment",
    "code": 4,
}

Document = Mapping[str, Any]

log = EventLog("supervisor")


class Connection:
    """One peer. While an answer is due its next line waits."""

    def __init__(self, stream: socket.socket, service: "Service", *, is_child: bool) -> None:
        self.stream = stream
        self.is_child = is_child
        self.watches = False
        self.is_open = True
        self.answer_due = False
        self._service = service
        self.active_at = service.now()
        """When it was accepted, or the last line was taken or answered."""
        self._received = bytearray()
        self._unsent = bytearray()

    @property
    def is_idle(self) -> bool:
        """It waits for nothing and has asked nothing for a while. Half a line is no question."""
        return not self.answer_due and self._service.now() - self.active_at >= IDLE

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
        self.take_lines()
        if len(self._received) > LINE_BYTES_MAX:
            self.close()

    def take_lines(self) -> None:
        """Some lines, one after the other; the service comes back for more."""
        for _ in range(LINES_PER_TURN_MAX):
            if not self._take_line():
                return
        self._service.come_back_to(self)

    def _take_line(self) -> bool:
        """False where there is none, or the answer to the one before is due."""
        if not self.is_open or self.answer_due:
            return False
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return False
        self._received = rest
        self.answer_due = True
        self.active_at = self._service.now()
        self._service.take(self, bytes(line))
        return True

    def answer(self, document: Document) -> None:
        """The answer to the line taken last; then the next line is looked at, but not here: an
        answer that was given at once would lead to the next one in the same call, and so on."""
        assert self.answer_due
        self.answer_due = False
        self.active_at = self._service.now()
        self.send(document)
        if self.is_open and b"\n" in self._received:
            self._service.come_back_to(self)

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
        is_child: Callable[[int], bool],
        now: Callable[[], Instant],
    ) -> None:
        """`is_child` says whether a process is one of the cluster's own, by its pid."""
        self._selector = selector
        self._on_request = on_request
        self._is_child = is_child
        self.now = now
        self._turns_away = False
        self._accepts_at: Instant | None = None
        """None while the listener is watched."""
        self.connections: set[Connection] = set()
        self._behind: dict[Connection, None] = {}
        """These may have whole lines that nobody has looked at, in this order."""
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

    @property
    def is_behind(self) -> bool:
        """`look` has something to do, whatever the selector says."""
        return bool(self._behind)

    def come_back_to(self, connection: Connection) -> None:
        self._behind[connection] = None

    def look(self) -> None:
        """Take lines that were received before, a few of each connection; and who could not be
        accepted for a while, may be now."""
        if self._accepts_at is not None and self.now() >= self._accepts_at:
            self._accepts_at = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        behind, self._behind = self._behind, {}
        for connection in behind:
            connection.take_lines()

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
        self._behind.pop(connection, None)
        self._selector.unregister(connection.stream)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        if self._accepts_at is None:
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
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left; to try at once would be all that is done
            self._selector.unregister(self._listener)
            self._accepts_at = Instant(self.now() + ACCEPT_PAUSE)
            return
        pid, uid, _ = _CREDENTIALS.unpack(
            stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid not in {os.geteuid(), 0}:
            stream.close()
            return
        stream.settimeout(0)
        connection = Connection(stream, self, is_child=self._is_child(pid))
        self.connections.add(connection)
        self._selector.register(stream, selectors.EVENT_READ, connection.receive)
        if not self._is_room_for(connection):
            connection.send(_NO_ROOM)
            connection.close()

    def _is_room_for(self, new: Connection) -> bool:
        """There is, or it is made."""
        others = [one for one in self.connections if one is not new]
        group = [one for one in others if one.is_child == new.is_child]
        if len(group) < (CHILDREN_CONNECTIONS_MAX if new.is_child else CONNECTIONS_MAX):
            self._turns_away = False
            return True
        idle = [one for one in group if one.is_idle]
        if idle:
            # One that watches may wait for long, and rightly: it is the last to go.
            min(idle, key=lambda one: (one.watches, one.active_at)).close()
            return True
        if not self._turns_away:
            log.warning("connections_turned_away", connections=len(group), child=new.is_child)
        self._turns_away = True
        return False
