"""A socket that says exactly what a test wants, for input no client library would send."""

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.schema import ApiSchema

WAIT_S = 10.0


class RawClient:
    """One connection to a broker. `closed_by_peer` is how most bad input must end."""

    def __init__(self, bootstrap: str, *, receive_bytes: int | None = None) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        self.sock = socket.socket()
        self.sock.settimeout(WAIT_S)
        if receive_bytes is not None:  # before the handshake tells the peer of a larger window
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            self.sock.connect((host, int(port)))
        except OSError:
            self.sock.close()
            raise
        self._correlation = 0

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes; EOFError where the peer ends before."""
        parts: list[bytes] = []
        while size:
            part = self.sock.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def is_closed_by_peer(self) -> bool:
        """True once the peer has ended the connection without a further byte."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, api: ApiSchema[Any, Any], version: int, message: object) -> Any:
        """Send one request, wait for its answer."""
        number = self.start(api, version, message)
        correlation, answer = decode_response(api, version, memoryview(self.receive_frame()))
        assert correlation == number, (correlation, number)
        return answer

    def start(self, api: ApiSchema[Any, Any], version: int, message: object) -> int:
        """Send one request and do not wait; its correlation id."""
        self._correlation += 1
        self.send(request_bytes(api, version, message, self._correlation))
        return self._correlation

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def request_bytes(
    api: ApiSchema[Any, Any], version: int, message: object, correlation: int = 1
) -> bytes:
    """A whole request frame, size included."""
    return joined(encode_request(api, version, correlation, "raw-test", message))


def header_bytes(key: int, version: int, correlation: int, client_id: bytes | None) -> bytes:
    """A request header v1, for bodies that no encoder would make."""
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, correlation, size) + (client_id or b"")


def answers_of(frames: Sequence[bytes]) -> list[int]:
    """Correlation ids, in the order the answers came."""
    return [struct.unpack(">i", frame[:4])[0] for frame in frames]
