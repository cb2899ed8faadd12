"""The pipes between brokers: one inbox each, and a way into the inbox of every other. (shell)

What is pushed to a broker that is away waits until its pipe is full. It comes late, to its next
life, which drops it: every message names the life it is meant for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from tidelog.kernel.ids import BrokerId
from tidelog.kernel.launch import broker_endpoint
from tidelog.node.ipc.layout import Links
from tidelog.wire.replication import Payload

_RECONNECT_MS: Final = 10
_RECONNECT_MS_MAX: Final = 100
_QUEUED_MAX: Final = 1_000
_MESSAGES_PER_TURN: Final = 64
_MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024


class Pipelines:
    """Messages in parts, each way; a full pipe refuses and never blocks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime_dir: str,
        me: BrokerId,
        links: Links,
        on_message: Callable[[list[bytes]], None],
    ) -> None:
        self._loop = loop
        self._me = me
        self._links = links
        self._runtime_dir = runtime_dir
        self._on_message = on_message
        self._context = zmq.Context()
        self._inbox = self._socket(zmq.PULL)
        self._inbox.set(zmq.RCVHWM, _QUEUED_MAX)
        self._inbox.set(zmq.MAXMSGSIZE, _MESSAGE_BYTES_MAX)
        self._inbox.bind(broker_endpoint(runtime_dir, me))
        self._ways: dict[BrokerId, zmq.Socket[bytes]] = {}
        self._held: dict[BrokerId, deque[list[bytes]]] = {}
        """On slow links: what waits for its time."""
        self._closed = False

    def start(self) -> None:
        """Hear what comes."""
        self._loop.add_reader(self._inbox.fileno(), self._on_readable)
        self._loop.call_soon(self._on_readable)

    def send(self, peer: BrokerId, parts: Sequence[Payload]) -> bool:
        """False where the pipe is full: the message is lost. On a cut link it is lost, too, and
        nobody is told."""
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
        if self._links.get(self._me, peer) != Links.CUT:
            self._push(peer, parts)

    def _push(self, peer: BrokerId, parts: Sequence[Payload]) -> bool:
        way = self._ways.get(peer)
        if way is None:
            way = self._ways[peer] = self._socket(zmq.PUSH)
            way.set(zmq.SNDHWM, _QUEUED_MAX)
            way.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
            way.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
            way.connect(broker_endpoint(self._runtime_dir, peer))
        try:
            way.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._inbox.fileno())
        for socket in (self._inbox, *self._ways.values()):
            socket.close(linger=0)
        self._context.term()

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 0)
        return socket

    def _on_readable(self) -> None:
        """Drain: the descriptor tells of changes only, not of what is still there."""
        for _ in range(_MESSAGES_PER_TURN):
            if self._closed:
                return
            try:
                parts = self._inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_message(parts)
        self._loop.call_soon(self._on_readable)
