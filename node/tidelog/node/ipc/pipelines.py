"""The ways between brokers: one inbox each, and a way into the inbox of every other. (shell)

An inbox has two doors: a ZeroMQ pipe that takes everything, and a datagram socket for small
messages, which reach the other process without a thread between; `two_ways.py` keeps their order.
What is pushed to a broker that is away waits until its pipe is full. It comes late, to its next
life, which drops it: every message names the life it is meant for.
"""

import asyncio
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import zmq

from tidelog.kernel.ids import BrokerId
from tidelog.kernel.launch import broker_endpoint, broker_short_endpoint
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.node.ipc.layout import Links
from tidelog.node.ipc.two_ways import STAMP_BYTES, Received, Sent, read_stamp
from tidelog.wire.replication import Payload

_RECONNECT_MS: Final = 10
_RECONNECT_MS_MAX: Final = 100
_QUEUED_MAX: Final = 1_000
_MESSAGES_PER_TURN: Final = 64
_MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024
_SHORT_QUEUED_MAX: Final = 1_024
"""No kernel lets more wait in a datagram socket (`net.unix.max_dgram_qlen` is 10 or 512)."""
_SHORT_BYTES_MAX: Final = 16 * 1024
"""Of a message on the short way, with its stamp."""


class _Way:
    """Into one other broker's inbox."""

    def __init__(self, pipe: "zmq.Socket[bytes]", me: BrokerId, short_endpoint: str) -> None:
        self._pipe = pipe
        self._sent = Sent(me, time.monotonic_ns())
        self._short_endpoint = short_endpoint
        self._short: socket.socket | None = None

    def send(self, parts: Sequence[Payload]) -> bool:
        """False where there is no room for it."""
        frame = parts[0]
        if len(parts) == 1 and len(frame) <= _SHORT_BYTES_MAX - STAMP_BYTES and self._hand(frame):
            return True
        if self._short is None:
            self._connect()
        stamped = b"".join((frame, self._sent.pipe_stamp()))
        try:
            self._pipe.send_multipart([stamped, *parts[1:]], zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._sent.piped()
        return True

    def _hand(self, frame: Payload) -> bool:
        """By the short way, where there is one and it has room."""
        stamp = self._sent.short_stamp()
        if self._short is None or not stamp:
            return False
        try:
            self._short.send(b"".join((frame, stamp)))
        except BlockingIOError:
            return False
        except OSError:  # the life it led to is over
            self._short.close()
            self._short = None
            return False
        return True

    def _connect(self) -> None:
        short = _datagrams()
        try:
            short.connect(self._short_endpoint)
        except OSError:  # it is not there yet, or not any more
            short.close()
            return
        self._short = short
        self._sent.begin(time.monotonic_ns())

    def close(self) -> None:
        self._pipe.close(linger=0)
        if self._short is not None:
            self._short.close()


class Pipelines:
    """Messages in parts, in order, each way; a full pipe refuses and never blocks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime_dir: str,
        me: BrokerId,
        links: Links,
        on_message: Callable[[Sequence[Payload]], None],
        on_lost: Callable[[BrokerId], None],
    ) -> None:
        self._loop = loop
        self._me = me
        self._links = links
        self._runtime_dir = runtime_dir
        self._on_message = on_message
        self._on_lost = on_lost
        """Told of a message that `send` took and that was lost later."""
        self._context = zmq.Context()
        self._inbox = self._socket(zmq.PULL)
        self._inbox.set(zmq.RCVHWM, _QUEUED_MAX)
        self._inbox.set(zmq.MAXMSGSIZE, _MESSAGE_BYTES_MAX)
        self._inbox.bind(broker_endpoint(runtime_dir, me))
        self._short = _short_inbox(broker_short_endpoint(runtime_dir, me))
        self._buffer = memoryview(bytearray(_SHORT_BYTES_MAX))
        self._ways: dict[BrokerId, _Way] = {}
        self._received: defaultdict[BrokerId, Received] = defaultdict(Received)
        self._held: dict[BrokerId, deque[list[bytes]]] = {}
        """On slow links: what waits for its time."""
        self._closed = False

    def start(self) -> None:
        """Hear what comes."""
        self._loop.add_reader(self._inbox.fileno(), self._on_readable)
        self._loop.add_reader(self._short.fileno(), self._on_short)
        self._loop.call_soon(self._on_readable)

    # -- out

    def send(self, peer: BrokerId, parts: Sequence[Payload]) -> bool:
        """False where the pipe is full: the message is lost. If a slow link holds the message and
        the pipe is full then, `on_lost` is called. On a cut link it is lost, too, and nobody is
        told."""
        fault = self._links.get(self._me, peer)
        if fault == Links.CUT:
            return True
        held = self._held.get(peer)
        if not fault and held is None:
            return self._push(peer, parts)
        return self._hold(peer, parts, fault)

    def _hold(self, peer: BrokerId, parts: Sequence[Payload], delay_ms: int) -> bool:
        """Send it later, and nothing that comes after it earlier."""
        held = self._held.setdefault(peer, deque())
        if len(held) >= _QUEUED_MAX:
            return False
        held.append([bytes(part) for part in parts])
        self._loop.call_later(delay_ms / 1000, self._let_go, peer)
        return True

    def _let_go(self, peer: BrokerId) -> None:
        held = self._held.get(peer)
        if self._closed or held is None:
            return
        parts = held.popleft()
        if not held:
            del self._held[peer]
        is_cut = self._links.get(self._me, peer) == Links.CUT
        if not is_cut and not self._push(peer, parts):
            self._on_lost(peer)

    def _push(self, peer: BrokerId, parts: Sequence[Payload]) -> bool:
        way = self._ways.get(peer)
        if way is None:
            pipe = self._socket(zmq.PUSH)
            pipe.set(zmq.SNDHWM, _QUEUED_MAX)
            pipe.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
            pipe.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
            pipe.connect(broker_endpoint(self._runtime_dir, peer))
            way = _Way(pipe, self._me, broker_short_endpoint(self._runtime_dir, peer))
            self._ways[peer] = way
        return way.send(parts)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._inbox.fileno())
        self._loop.remove_reader(self._short.fileno())
        self._short.close()
        Path(broker_short_endpoint(self._runtime_dir, self._me)).unlink(missing_ok=True)
        self._inbox.close(linger=0)
        for way in self._ways.values():
            way.close()
        self._context.term()

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        made.set(zmq.LINGER, 0)
        return made

    # -- in

    def _on_readable(self) -> None:
        """Drain: the descriptor tells of changes only, not of what is still there."""
        for _ in range(_MESSAGES_PER_TURN):
            if self._closed:
                return
            try:
                parts = self._inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            for _ in range(_SHORT_QUEUED_MAX):
                if not self._hear_short():
                    break  # all that was sent before this one is heard
            if not self._closed:
                self._hear_piped(parts)
        self._loop.call_soon(self._on_readable)

    def _hear_piped(self, parts: list[bytes]) -> None:
        if len(parts[0]) < STAMP_BYTES:
            self._on_message(parts)  # it says of itself that it is none
            return
        stamp = read_stamp(parts[0])
        if stamp.sender >= BROKERS_MAX:
            self._on_message([b""])  # no broker of ours sent it
            return
        received = self._received[stamp.sender]
        received.piped(stamp)
        self._on_message([memoryview(parts[0])[:-STAMP_BYTES], *parts[1:]])
        for released in received.released():
            if not self._closed:
                self._on_message(released)

    def _on_short(self) -> None:
        for _ in range(_MESSAGES_PER_TURN):
            if not self._hear_short():
                return

    def _hear_short(self) -> bool:
        """Whether there was something."""
        if self._closed:
            return False
        try:
            size = self._short.recv_into(self._buffer)
        except BlockingIOError:
            return False
        frame = self._buffer[:size]
        if size < STAMP_BYTES:
            self._on_message([frame])
            return True
        stamp = read_stamp(frame)
        if stamp.sender >= BROKERS_MAX:
            self._on_message([b""])
            return True
        frame = frame[:-STAMP_BYTES]
        if self._received[stamp.sender].short(stamp, frame):
            self._on_message([frame])
        return True


def _short_inbox(endpoint: str) -> socket.socket:
    """What an earlier life of this broker left there leads nowhere."""
    made = _datagrams()
    Path(endpoint).unlink(missing_ok=True)
    made.bind(endpoint)
    return made


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
