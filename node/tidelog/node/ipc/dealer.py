"""A ZeroMQ DEALER under the event loop: frames, and whether the other end is there. (shell)

Make it in the process's own life: a ZeroMQ context does not survive a fork.
"""

import asyncio
from collections.abc import Callable
from struct import Struct as Layout
from typing import Final

import zmq

from tidelog.kernel.limits import CONTROL_MESSAGE_BYTES_MAX

_RECONNECT_MS: Final = 5
_RECONNECT_MS_MAX: Final = 20
_MESSAGES_PER_TURN: Final = 64
_MONITOR_HEAD: Final = Layout("=hi")
"""The event's number and its value; the endpoint follows as a part of its own."""
_SEND_AGAIN_S: Final = 0.1


class Dealer:
    """Tells of each connection and of each frame, all on one loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: str,
        name: bytes,
        *,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_frame: Callable[[bytes], None],
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._on_up = on_up
        self._on_down = on_down
        self._on_frame = on_frame
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set(zmq.IDENTITY, name)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.IMMEDIATE, 1)  # nothing queues for who is not there
        self._socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
        self._socket.set(zmq.MAXMSGSIZE, CONTROL_MESSAGE_BYTES_MAX)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._up = False
        self._look_again: asyncio.Handle | None = None
        self._closed = False

    def start(self) -> None:
        """Connect, and stay connected."""
        self._loop.add_reader(self._monitor.fileno(), self._on_monitor)
        self._loop.add_reader(self._socket.fileno(), self._on_socket)
        self._socket.connect(self._endpoint)
        self._on_monitor()

    def send(self, frame: bytes) -> None:
        """Where there is no connection after all, it is lost, and another `on_up` comes."""
        if self._closed:
            return
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            self._loop.call_later(_SEND_AGAIN_S, self._reconnect)
        self._look_soon()  # sending may have swallowed the descriptor's edge, also where it failed

    def close(self) -> None:
        """Nothing is told after this."""
        if self._closed:
            return
        self._closed = True
        if self._look_again is not None:
            self._look_again.cancel()
        self._loop.remove_reader(self._monitor.fileno())
        self._loop.remove_reader(self._socket.fileno())
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def _on_monitor(self) -> None:
        while not self._closed and self._monitor.poll(0):
            # zmq.utils.monitor does this too, and imports ZeroMQ's asyncio part for it.
            head, _endpoint = self._monitor.recv_multipart(zmq.NOBLOCK)
            event, _value = _MONITOR_HEAD.unpack(head)
            self._up = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            (self._on_up if self._up else self._on_down)()

    def _reconnect(self) -> None:
        if self._up and not self._closed:
            self._on_up()

    def _on_socket(self) -> None:
        """Drain: the descriptor tells of changes only, not of what is still there."""
        self._look_again = None
        for _ in range(_MESSAGES_PER_TURN):
            if self._closed or not self._socket.poll(0):
                return
            self._on_frame(self._socket.recv(zmq.NOBLOCK))
        self._look_soon()

    def _look_soon(self) -> None:
        if self._look_again is None and not self._closed:
            self._look_again = self._loop.call_soon(self._on_socket)
