"""A process that attacks a cluster: some threads, each with connections and draws of its own."""

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from harness.faults.fuzz_traffic import Traffic
from harness.faults.fuzz_values import Aims
from tidelog.wire.registry import api_for

BURST_MAX: Final = 60
THREADS: Final = 4
_HEAD_BYTES: Final = 12
_ANSWERS_WAIT_S: Final = 0.25
_SEND_WAIT_S: Final = 0.5
_PARENT_LOOK_S: Final = 1.0
_UNREAD_MAX: Final = 4
_KEPT_FRAMES: Final = 2_000
_KEPT_BYTES: Final = 8 << 20
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does."""

    seed: str
    addresses: tuple[str, ...]
    apis: tuple[tuple[int, int, int], ...]
    """Key, lowest and highest version."""
    aims: Aims
    requests: int
    """Of all threads together."""
    folder: Path
    """Where each thread writes down what it said last, if something went wrong."""


def attack(plan: Plan, stop: Event, went_wrong: Event) -> None:
    """Until everything is said, or `stop`."""
    each = -(-plan.requests // THREADS)
    threads = [Attacker(plan, number, each, stop) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = {
        "sent": sum(one.sent for one in threads),
        "answers": sum(one.answers for one in threads),
    }
    (plan.folder / f"{plan.seed}.json").write_text(json.dumps(said), encoding="utf-8")
    parent = os.getppid()
    while not stop.wait(_PARENT_LOOK_S):  # the watch goes on: something may yet go wrong
        if os.getppid() != parent:
            return
    if went_wrong.is_set():
        for thread in threads:
            thread.write_down(plan.folder)


class Attacker(threading.Thread):
    """Connects, says a few things, reads the answers or not, and leaves or does not."""

    def __init__(self, plan: Plan, number: int, requests: int, stop: Event) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.answers = 0
        self._label = f"{plan.seed}-{number}"
        self._addresses = [_address(one) for one in plan.addresses]
        apis = [(api_for(key), range(low, high + 1)) for key, low, high in plan.apis]
        self._traffic = Traffic(apis, plan.aims, self._label)
        self._requests = requests
        self._stopping = stop
        self._unread: deque[socket.socket] = deque()
        self._said: deque[tuple[int, int, bytes]] = deque()
        self._said_bytes = 0
        self._connection = 0

    def run(self) -> None:
        try:
            self._attack()
        finally:
            while self._unread:
                self._unread.popleft().close()

    def _attack(self) -> None:
        random = self._traffic.random
        while self.sent < self._requests and not self._stopping.is_set():
            broker = random.randrange(len(self._addresses))
            mood = random.random()
            count = random.choice((1, 1, 2, 4))
            bursts = [self._traffic.burst(broker, BURST_MAX) for _ in range(count)]
            with contextlib.suppress(OSError, EOFError):
                self._connect(broker, mood, bursts)

    def _connect(self, broker: int, mood: float, bursts: Sequence[list[bytes]]) -> None:
        self._connection += 1
        for burst in bursts:
            self.sent += len(burst)
        sock = socket.create_connection(self._addresses[broker], timeout=_SEND_WAIT_S)
        try:
            for burst in bursts:
                self._note(broker, burst)
                sock.sendall(b"".join(burst))
                if mood < 0.65:
                    self._read(sock, burst)
        except BaseException:
            sock.close()
            raise
        if 0.65 <= mood < 0.85:
            self._unread.append(sock)
            if len(self._unread) > _UNREAD_MAX:
                self._unread.popleft().close()
            return
        if mood >= 0.85:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        sock.close()

    def _read(self, sock: socket.socket, burst: Sequence[bytes]) -> None:
        """The answers, while they come; TimeoutError where the last ones do not."""
        left, deadline = len(burst), time.monotonic() + _ANSWERS_WAIT_S
        asked = {frame[8:12]: frame for frame in burst if len(frame) > _HEAD_BYTES}
        received = bytearray()
        while left:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            part = sock.recv(1 << 18)
            if not part:
                raise EOFError
            received += part
            for frame in _whole_frames(received):
                left -= 1
                self.answers += 1
                request = asked.get(bytes(frame[:4]))
                if request is not None:
                    self._traffic.learn(memoryview(frame), request)

    def _note(self, broker: int, burst: Sequence[bytes]) -> None:
        for frame in burst:
            self._said.append((self._connection, broker, frame))
            self._said_bytes += len(frame)
        while len(self._said) > _KEPT_FRAMES or self._said_bytes > _KEPT_BYTES:
            self._said_bytes -= len(self._said.popleft()[2])

    def write_down(self, folder: Path) -> None:
        """What was said last, for `replay`."""
        with (folder / f"{self._label}.frames").open("w", encoding="utf-8") as file:
            for connection, broker, frame in self._said:
                file.write(json.dumps([f"{self._label}-{connection}", broker, frame.hex()]) + "\n")


def _whole_frames(received: bytearray) -> list[bytes]:
    """Cut them off the front, without their sizes."""
    frames = []
    while len(received) >= 4:
        end = 4 + int.from_bytes(received[:4], "big")
        if len(received) < end:
            break
        frames.append(bytes(received[4:end]))
        del received[:end]
    return frames


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
