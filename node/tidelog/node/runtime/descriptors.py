"""How the descriptors a broker may have are shared: clients must never take those of the logs."""

import resource
from typing import Final, NamedTuple

_OTHERS: Final = 64
"""The loop's, ZeroMQ's, the board's, logs, locks, and files open for a moment."""
_FILES_MIN: Final = 8


class Share(NamedTuple):
    """Together with the others never more than the limit."""

    files: int
    connections: int


def share(limit: int, connections_max: int) -> Share:
    """Files get what the connections leave, from a quarter to a half.

    >>> share(20_000, 10_000)
    Share(files=9936, connections=10000)
    >>> share(1024, 10_000)
    Share(files=256, connections=704)
    """
    left = limit - connections_max - _OTHERS
    files = max(_FILES_MIN, limit // 4, min(limit // 2, left))
    return Share(files, max(1, min(connections_max, limit - files - _OTHERS)))


def share_of_this_process(connections_max: int) -> Share:
    return share(resource.getrlimit(resource.RLIMIT_NOFILE)[0], connections_max)
