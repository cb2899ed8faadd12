"""Lines of a file descriptor as they come, never more in memory than one read and one line."""

import os
import select
from collections.abc import Iterator

from tidelog.kernel.limits import KIB, MIB
from tidelog.tools.output import fail

READ_BYTES = 256 * KIB
LINE_BYTES_MAX = 16 * MIB
QUIET_S = 0.005
"""No input for so long: whoever writes it waits for something, so it is time to send."""


def lines_of(descriptor: int) -> Iterator[list[bytes]]:
    """Lines without their newline, in blocks; an empty block each time the input pauses.

    The last line may lack its newline; an empty line is a line.
    """
    rest: list[bytes] = []
    held = 0
    while True:
        if not _has_input(descriptor, QUIET_S):
            yield []
            _has_input(descriptor, None)
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        first, newline, tail = data.partition(b"\n")
        rest.append(first)
        held += len(first)
        if held > LINE_BYTES_MAX:
            fail(f"a line of more than {LINE_BYTES_MAX // MIB} MiB: no record can hold it")
        if not newline:
            continue
        lines = tail.split(b"\n")
        yield [b"".join(rest), *lines[:-1]]
        rest, held = [lines[-1]], len(lines[-1])
    if held:
        yield [b"".join(rest)]


def _has_input(descriptor: int, wait_s: float | None) -> bool:
    """True also at the end of the input, and always for a regular file."""
    return bool(select.select([descriptor], [], [], wait_s)[0])
