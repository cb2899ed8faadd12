"""One client connection of a broker, real but for the processes: a socket pair, a loop, files."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from harness.machines.brokers import HandlerBench
from tidelog.kernel.limits import REQUEST_BYTES_MAX
from tidelog.node.net.connection import Connection, NetworkParts, NetworkStats
from tidelog.node.runtime.cold_reads import ColdReads

TURNS_MAX = 100_000


class Connected:
    """`client` is the other end; nothing moves but by `turn`, so a test sees each step."""

    def __init__(
        self, directory: Path, *, frame_bytes_max: int = REQUEST_BYTES_MAX, **settings: str
    ) -> None:
        self.bench = HandlerBench(directory, **settings)
        self.loop = uvloop.new_event_loop()
        # One thread: whatever a test has done there is done behind what the broker had done there.
        self.loop.set_default_executor(ThreadPoolExecutor(1))
        self.faults: list[BaseException] = []
        self.refused: list[str] = []
        self.closed = False
        self.lost = False
        self.loop.set_exception_handler(
            lambda _, context: self.faults.append(context.get("exception") or AssertionError())
        )
        ours, self.client = socket.socketpair()
        ours.settimeout(0)
        self.client.settimeout(0)
        self.parts = NetworkParts(
            loop=self.loop,
            dispatcher=self.bench.dispatcher,
            stats=NetworkStats(),
            cold_reads=ColdReads(self.loop),
            frame_bytes_max=frame_bytes_max,
            received=self.bench.broker.received,
            log_refused=lambda _, reason: self.refused.append(reason),
            is_lost=lambda: self.lost,
        )
        self.connection = Connection(self.parts, ours, "127.0.0.1:1", self._on_closed)

    def _on_closed(self, _connection: Connection) -> None:
        self.closed = True

    def turn(self) -> None:
        """One turn of the loop; a fault in a callback is the test's."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        if self.faults:
            raise self.faults[0]

    def send(self, data: bytes | memoryview) -> int:
        """As much as the sockets take while the broker reads; how much that was."""
        view = memoryview(data)
        sent = 0
        idle = 0
        while sent < len(view) and idle < 3:
            try:
                sent += self.client.send(view[sent:])
                idle = 0
            except BlockingIOError:
                idle += 1
            except (BrokenPipeError, ConnectionResetError):
                break
            self.turn()
        self.turn()
        return sent

    def receive_into(self, buffer: memoryview) -> int:
        """Fill the buffer; fewer bytes only where no more come."""
        got = idle = 0
        while got < len(buffer) and idle < 5:
            try:
                count = self.client.recv_into(buffer[got:])
            except BlockingIOError:
                idle += 1
                count = 0
            else:
                if not count:
                    break
                idle = 0
            got += count
            self.turn()
        return got

    def frame(self) -> bytes | None:
        """The next whole answer; None where none comes."""
        size = bytearray(4)
        if self.receive_into(memoryview(size)) < 4:
            return None
        body = bytearray(int.from_bytes(size, "big"))
        assert self.receive_into(memoryview(body)) == len(body)
        return bytes(body)

    def close(self) -> None:
        self.connection.abort()
        self.client.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
