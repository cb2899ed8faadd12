"""Ways of a file's bytes to a socket, as `cache.read` says. A shell."""

import mmap
import os
import socket
from typing import Final

from tidelog.node.log.cache_rules import MMAP, PREAD

CHUNK_BYTES: Final = 256 * 1024
"""More is read or mapped by the next call: the socket takes about as much at one time."""


def send_range(sock: socket.socket, fd: int, position: int, size: int, way: str) -> int:
    """How much of it was sent; 0 where the file has no such bytes any more."""
    if way == PREAD:
        data = os.pread(fd, min(size, CHUNK_BYTES), position)
        return sock.send(data) if data else 0
    if way == MMAP:
        return _send_mapped(sock, fd, position, min(size, CHUNK_BYTES))
    return os.sendfile(sock.fileno(), fd, position, size)


def _send_mapped(sock: socket.socket, fd: int, position: int, size: int) -> int:
    """The kernel reads the mapped pages itself: of a file that is cut meanwhile the call fails, and
    no signal ends the broker as one would that touched them."""
    before = position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(fd, before + size, access=mmap.ACCESS_READ, offset=position - before)
    except ValueError:
        return 0  # it is shorter
    with mapped, memoryview(mapped) as whole, whole[before:] as wanted:
        return sock.send(wanted)
