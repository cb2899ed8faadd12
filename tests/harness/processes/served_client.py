"""Stands for `tidelog` in lines that a shell runs: `python -IS served_client.py SOCKET WORD...`.

The command server runs the words, with the streams, folder and environment of this process, which
ends as they do. This process imports next to nothing: it starts in a tenth of the time that Python
needs for a command.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterable

LENGTH = struct.Struct("=I")
STREAMS = (0, 1, 2)
_FAILED = 1
_SIGNALLED = 128
_CODE_BYTES = 64


def send(connection: socket.socket, streams: Iterable[int], fields: Iterable[str]) -> None:
    """Zero bytes are between the fields: no argument and no variable can contain one."""
    data = os.fsencode("\0".join(fields))
    socket.send_fds(connection, [LENGTH.pack(len(data))], list(streams))
    connection.sendall(data)


def main() -> int:
    """As a shell has the exit code of a process that a signal ended."""
    path, *words = sys.argv[1:]
    folder = os.getcwd()  # noqa: PTH109 -- pathlib takes as long to import as all the rest
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        send(connection, STREAMS, [folder, str(len(words)), *words, *variables])
        code = int(connection.recv(_CODE_BYTES) or _FAILED)
    return code if code >= 0 else _SIGNALLED - code


if __name__ == "__main__":
    sys.exit(main())
