"""Frames that a fuzzer has kept: said again to another cluster, and made few."""

import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.faults.fuzz_values import Aims

Said = tuple[str, int, bytes]
"""A connection's name, the broker it went to, and one frame."""

_WAIT_S: Final = 0.3
_ROUNDS_MAX: Final = 60


def written(folder: Path) -> list[Said]:
    """The frames of all attackers, connection by connection."""
    files = sorted(folder.glob("*.frames"))
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [json.loads(line) for line in lines]
    return [(connection, broker, bytes.fromhex(frame)) for connection, broker, frame in rows]


def replay(addresses: Sequence[str], frames: Sequence[Said], folder: Path, aims: Aims) -> None:
    """Each connection after the other; topics have other ids in this cluster."""
    known = dict(aims.topics)
    ids = [
        (bytes.fromhex(topic), known[name])
        for name, topic in json.loads((folder / "aims.json").read_text(encoding="utf-8"))
    ]
    by_connection: dict[tuple[str, int], list[bytes]] = {}
    for connection, broker, frame in frames:
        by_connection.setdefault((connection, broker), []).append(frame)
    for (_, broker), burst in by_connection.items():
        data = b"".join(burst)
        for before, after in ids:
            data = data.replace(before, after)
        _say(addresses[broker], data)


def _say(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), timeout=_WAIT_S) as sock,
    ):
        sock.sendall(data)
        while sock.recv(1 << 18):
            pass


def shrunk(frames: Sequence[Said], does_harm: Callable[[Sequence[Said]], bool]) -> list[Said]:
    """Few frames that do harm still: pieces are left out, ever smaller ones."""
    kept, pieces, rounds = list(frames), 2, 0
    while len(kept) > 1 and pieces <= len(kept) and rounds < _ROUNDS_MAX:
        size = -(-len(kept) // pieces)
        for start in range(0, len(kept), size):
            rounds += 1
            fewer = kept[:start] + kept[start + size :]
            if fewer and does_harm(fewer):
                kept, pieces = fewer, max(2, pieces - 1)
                break
        else:
            pieces *= 2
    return kept
