"""One client connection: receives into a reused buffer, sends answers and file ranges. A shell."""

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant
from tidelog.node.log.contracts import FileSlice
from tidelog.node.net.behind import ReadBehind
from tidelog.node.net.client import Client, CloseConnectionError
from tidelog.node.net.received import ReceivedBytes
from tidelog.node.net.receiver import FrameError, Receiver
from tidelog.node.net.session import OVERLAPPING, Session
from tidelog.node.runtime.cold_reads import ColdReads
from tidelog.node.runtime.disk import DiskFile
from tidelog.node.runtime.file_sending import send_range
from tidelog.node.runtime.page_cache import next_in_memory
from tidelog.wire.compile import Piece
from tidelog.wire.errors import WireError

_GATHER_MAX: Final = 64


class Dispatcher(Protocol):
    """Begins requests. An answer may be there when it returns, or come later."""

    def begin(self, client: Client, frame: memoryview, now: Instant) -> None: ...


class NetworkStats(Struct):
    """Counters of all connections, for the board."""

    connections: int = 0
    accepted: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    refused_frames: int = 0


class NetworkParts(Struct, frozen=True):
    """What every connection of a broker shares."""

    loop: asyncio.AbstractEventLoop
    dispatcher: Dispatcher
    stats: NetworkStats
    cold_reads: ColdReads
    frame_bytes_max: int
    received: ReceivedBytes
    log_refused: Callable[[str, str], None]
    """Called with address and reason when the protocol makes us end a connection."""
    is_lost: Callable[[], bool]
    """Whether this broker was given up: then it has ended every connection, and begins and sends
    nothing."""


class Connection:
    """A client's socket.

    Invariant: it reads only while the next request may be begun or the buffer has room for a
    little more; so a client that never reads its answers holds a bounded amount of memory. It does
    not read while all connections together hold so much that its buffer may not grow.
    """

    def __init__(
        self,
        parts: NetworkParts,
        sock: socket.socket,
        address: str,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self.session = Session()
        self.last_progress = self.opened = time.monotonic_ns()
        self.has_asked = False
        """Whether it has sent a whole request."""
        self._parts = parts
        self._sock = sock
        self._fd = sock.fileno()
        self._address = address
        self._on_closed = on_closed
        self.account = parts.received.open(self._memory_granted, self.relax, self._incomplete)
        self._receiver = Receiver(parts.frame_bytes_max, self.account)
        self._starved = False
        self._held: memoryview | None = None
        self._out: deque[Piece] = deque()
        self._file_sent = 0
        self._behind: ReadBehind | None = None
        self._in_turn = False
        self._reading = False
        self._writing = False
        self._warming = self._just_read = False
        self._closed = False
        parts.stats.connections += 1
        self._read(wanted=True)

    @property
    def address(self) -> str:
        return self._address

    @property
    def receive_capacity(self) -> int:
        """Bytes of memory its receive buffer takes."""
        return self._receiver.capacity

    def answered(self) -> None:
        if self._closed or self._in_turn:
            return
        self._flush()
        self._turn()

    def close(self, reason: str) -> None:
        if self._closed:
            return
        self._parts.stats.refused_frames += 1
        self._parts.log_refused(self._address, reason)
        self.session.closing = True
        self._flush()
        self.session.abandon()
        if not self._out:
            self.abort()

    def abort(self) -> None:
        """End the connection now, whatever is still unsent."""
        if self._closed:
            return
        self._closed = True
        self._read(wanted=False)
        self._write_when_possible(wanted=False)
        self._sock.close()
        for piece in self._out:
            if isinstance(piece, FileSlice):
                piece.file.readers -= 1
        self._out.clear()
        self._drop_behind()
        self.session.abandon()
        self._held = None
        self._receiver.close()
        self._parts.stats.connections -= 1
        self._on_closed(self)

    def relax(self) -> None:
        """Give memory back that an idle connection does not need."""
        if self._held is None and not self._closed:
            self._receiver.relax()

    def _memory_granted(self) -> None:
        self._starved = False
        self._settle_reading()

    def _incomplete(self) -> int:
        return self._receiver.pending if self._reading else 0

    def _on_readable(self) -> None:
        receiver = self._receiver
        room = receiver.room()
        if not room:
            # Its client waits until other requests have given memory back.
            self._starved = True
            self._read(wanted=False)
            return
        try:
            count = self._sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if count == 0:
            self.abort()
            return
        self._parts.stats.bytes_in += count
        receiver.received(count)
        self._turn()

    def _turn(self) -> None:
        """Begin every request that has arrived and may be begun, then send what is answered."""
        if self._closed or self._parts.is_lost():
            return
        now = Instant(time.monotonic_ns())
        self.last_progress = now
        try:
            self._begin_requests(now)
            self._flush()
            # An answer given at once lets the request begin that waited behind it.
            while self._held is not None and self._may_begin_held(self._held):
                self._begin_requests(now)
                self._flush()
        except (FrameError, WireError, CloseConnectionError) as error:
            self.close(str(error))
            return
        self._settle_reading()

    def _may_begin_held(self, held: memoryview) -> bool:
        key = _key(held)
        return not self._closed and self.session.may_begin(barrier=key < 0, key=key)

    def _begin_requests(self, now: Instant) -> None:
        session = self.session
        receiver = self._receiver
        begin = self._parts.dispatcher.begin
        self._in_turn = True
        try:
            while not session.closing:
                frame = self._held
                if frame is None:
                    frame = receiver.next_frame()
                    if frame is None:
                        return
                key = _key(frame)
                if not session.may_begin(barrier=key < 0, key=key):
                    self._held = frame
                    return
                self._held = None
                if self.account.watched:
                    self.account.completed()
                    self._starved = False  # it waits no more; it asks again where it must
                self._parts.stats.requests += 1
                self.has_asked = True
                begin(self, frame, now)
        finally:
            self._in_turn = False

    def _settle_reading(self) -> None:
        """Read on unless a request is held back, or enough has come behind one that is not done."""
        if self._closed:
            return
        full = (
            self.session.in_flight and self._receiver.pending >= limits.RECEIVE_BUFFER_BYTES_STEADY
        )
        wanted = self._held is None and not (full or self._starved or self.session.closing)
        if wanted is not self._reading:
            self._read(wanted=wanted)
        if self.account.held and self._parts.received.is_scarce:
            self.relax()

    def _flush(self) -> None:
        pieces = self.session.ready()
        if not pieces:
            return
        if len(pieces) == 1 and not self._out and not isinstance(pieces[0], FileSlice):
            self._send_alone(pieces[0])
            return
        for piece in pieces:
            if isinstance(piece, FileSlice):
                piece.file.readers += 1
        if not self._out:
            self._drop_behind()
        self._out.extend(pieces)
        if not self._writing and not self._warming:
            self._write()

    def _send_alone(self, answer: Piece) -> None:
        """Send an answer that nothing stands before: the socket takes nearly every one whole, so
        that there is nothing to keep for later."""
        assert isinstance(answer, bytes | bytearray | memoryview), type(answer)
        if self._parts.is_lost():
            return
        try:
            sent = self._sock.send(answer)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.abort()
            return
        self._parts.stats.bytes_out += sent
        self.session.delivered(sent)
        if sent < len(answer):
            self._out.append(memoryview(answer)[sent:])
            self._write_when_possible(wanted=True)
        elif self.session.closing and not self.session.in_flight:
            self.abort()

    def _on_writable(self) -> None:
        self._write()
        if not self._closed and not self._writing:
            self._turn()

    def _write(self) -> None:
        """Send until all is out or the socket is full."""
        if self._parts.is_lost():
            return
        out = self._out
        try:
            while out:
                first = out[0]
                if isinstance(first, FileSlice):
                    sent = self._send_file(first)
                    if sent < 0:
                        return
                else:
                    sent = self._send_bytes()
                self._parts.stats.bytes_out += sent
                self.session.delivered(sent)
        except (BlockingIOError, InterruptedError):
            self._write_when_possible(wanted=True)
            return
        except OSError:
            self.abort()
            return
        self.last_progress = time.monotonic_ns()
        self._write_when_possible(wanted=False)
        if self.session.closing and not self.session.in_flight:
            self.abort()

    def _send_bytes(self) -> int:
        parts, flags = self._gather()
        sent = (
            self._sock.send(parts[0], flags)
            if len(parts) == 1
            else self._sock.sendmsg(parts, (), flags)
        )
        left = sent
        for part in parts:
            if left < len(part):
                self._out[0] = memoryview(part)[left:]
                return sent
            left -= len(part)
            self._out.popleft()
        return sent

    def _gather(self) -> tuple[list[bytes | bytearray | memoryview], int]:
        """The bytes up to the next file range, and whether more follows at once."""
        parts: list[bytes | bytearray | memoryview] = []
        for piece in self._out:
            if isinstance(piece, FileSlice) or len(parts) == _GATHER_MAX:
                return parts, socket.MSG_MORE
            assert isinstance(piece, bytes | bytearray | memoryview), type(piece)
            parts.append(piece)
        return parts, 0

    def _send_file(self, piece: FileSlice) -> int:
        """Bytes sent, or -1 where the range must first be read: from the disk, or for a check."""
        size = len(piece)
        position = piece.position + self._file_sent
        left = size - self._file_sent
        assert isinstance(piece.file, DiskFile)
        fd = piece.file.fileno()
        cold_reads = self._parts.cold_reads
        # What was read a moment ago is sent, whatever became of it: else it might never be.
        is_first = not self._file_sent
        is_cached = self._just_read or (
            cold_reads.is_cached(fd, position, left, between=is_first)
            and not (is_first and not piece.was_checked and cold_reads.is_sick(fd))
        )
        self._just_read = False
        if not is_cached:
            self._came_from_disk(piece)
        if not is_cached or (is_first and not piece.is_trusted):
            self._warming = True
            self._write_when_possible(wanted=False)
            done = partial(self._on_checked, piece)
            cold_reads.check(fd, piece.position, size, done, piece.cache, piece.course())
            return -1
        sent = send_range(self._sock, fd, position, left, piece.cache.read)
        if sent == 0:
            # The file ends before the range does: what was promised in the header cannot come.
            raise ConnectionAbortedError(f"{size - self._file_sent} bytes are gone from a log file")
        self._file_sent += sent
        if self._file_sent == size:
            self._out.popleft()
            piece.file.readers -= 1
            self._file_sent = 0
            if self._behind is not None and piece.cache.drops_behind:
                self._behind.sent(piece)
        return sent

    def _came_from_disk(self, piece: FileSlice) -> None:
        piece.doubt()
        if piece.cache.drops_behind:
            if self._behind is None:
                self._behind = ReadBehind()
            if not self._behind.knows(piece):
                assert isinstance(piece.file, DiskFile)
                end = piece.position + piece.size
                self._behind.begins(piece, next_in_memory(piece.file.fileno(), end))

    def _drop_behind(self) -> None:
        """What this consumer alone brought into the page cache, and has been sent, goes."""
        for one in self._behind.take() if self._behind is not None else ():
            assert isinstance(one.piece.file, DiskFile)
            one.piece.doubt()  # who reads it next gets what the disk gives
            with contextlib.suppress(OSError):  # it was deleted meanwhile
                self._parts.cold_reads.drop(one.piece.file.fileno(), one.start, one.size)

    def _on_checked(self, piece: FileSlice, bad: int | None) -> None:
        self._warming = False
        is_good = piece.found(bad)
        if self._closed:
            return
        if is_good:
            self._just_read = True
            self._on_writable()
        else:
            self.abort()  # its header promised what nobody should get

    def _read(self, *, wanted: bool) -> None:
        if wanted and not self._reading:
            self._parts.loop.add_reader(self._fd, self._on_readable)
        elif self._reading and not wanted:
            self._parts.loop.remove_reader(self._fd)
        self._reading = wanted

    def _write_when_possible(self, *, wanted: bool) -> None:
        if wanted and not self._writing:
            self._parts.loop.add_writer(self._fd, self._on_writable)
        elif self._writing and not wanted:
            self._parts.loop.remove_writer(self._fd)
        self._writing = wanted


def _key(frame: memoryview) -> int:
    """The first two bytes are the key; -1 of one whose requests never overlap."""
    key = frame[1]
    return key if not frame[0] and key in OVERLAPPING else -1
