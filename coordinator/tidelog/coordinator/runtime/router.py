"""The socket brokers talk to: a ZeroMQ ROUTER under the event loop. (shell)"""

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

from tidelog.coordinator.controller.feed import Peer
from tidelog.kernel.limits import CONTROL_MESSAGE_BYTES_MAX, FORWARDED_CALLS_MAX

_MESSAGES_PER_TURN: Final = 64
_PARTS: Final = 2
QUEUED_PER_PEER_MAX: Final = 8 * FORWARDED_CALLS_MAX


class Router:
    """Receives frames with the name of their sender, sends frames to a name."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: str,
        *,
        on_frame: Callable[[Peer, bytes], None],
        on_lost: Callable[[Peer], None],
        queued_max: int = QUEUED_PER_PEER_MAX,
    ) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._look_again: asyncio.Handle | None = None
        self._closed = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.ROUTER_HANDOVER, 1)  # a broker that reconnects is the same broker
        self._socket.set(zmq.SNDHWM, queued_max)
        self._socket.set(zmq.MAXMSGSIZE, CONTROL_MESSAGE_BYTES_MAX)
        self._socket.bind(endpoint)
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def send(self, peer: Peer, frame: bytes) -> None:
        """To a peer that is there; one that is not, or reads nothing, is reported lost."""
        if self._closed:
            return
        try:
            self._socket.send_multipart((peer, frame), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in {zmq.EHOSTUNREACH, zmq.EAGAIN}:
                raise
            self._loop.call_soon(self._on_lost, peer)
        self._look_soon()  # sending may have swallowed the descriptor's edge, also where it failed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._look_again is not None:
            self._look_again.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close(linger=0)
        self._context.term()

    def _look_soon(self) -> None:
        if self._look_again is None and not self._closed:
            self._look_again = self._loop.call_soon(self._on_readable)

    def _on_readable(self) -> None:
        """Drain: the descriptor tells of changes only, not of what is still there."""
        self._look_again = None
        for _ in range(_MESSAGES_PER_TURN):
            if self._closed or not self._socket.poll(0):
                return
            parts = self._socket.recv_multipart(zmq.NOBLOCK)
            if len(parts) == _PARTS:
                self._on_frame(parts[0], parts[1])
        self._look_soon()
