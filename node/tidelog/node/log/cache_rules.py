"""What a topic's settings want of the page cache: of its logs' bytes, and of their readers."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from tidelog.kernel.limits import MIB

_ALL, _TAIL, _NONE = "all", "tail", "none"
_SENDFILE, PREAD, MMAP = "sendfile", "pread", "mmap"
_KEEP, _DROP = "keep", "drop"
_NORMAL, SEQUENTIAL, RANDOM, WILLNEED = "normal", "sequential", "random", "willneed"
KEEP: Final = (_ALL, _TAIL, _NONE)
READ: Final = (_SENDFILE, PREAD, MMAP)
BEHIND: Final = (_KEEP, _DROP)
AHEAD: Final = (_NORMAL, SEQUENTIAL, RANDOM, WILLNEED)
"""Of all of these the first word leaves it to the kernel."""
CACHE_BYTES_DEFAULT: Final = 256 * MIB
_LONG_MAX: Final = 2**63 - 1
_STEPS: Final = 8
_STEP_MIN: Final = MIB


class CacheRules(Struct, frozen=True):
    """One topic's, on one broker."""

    keep: str = _ALL
    max_bytes: int = CACHE_BYTES_DEFAULT
    own_bound: bool = False
    """`max_bytes` is for this topic's logs alone, not for all of the broker."""
    read: str = _SENDFILE
    behind: str = _KEEP
    ahead: str = _NORMAL
    writeback_bytes: int = _LONG_MAX

    @property
    def is_bounded(self) -> bool:
        return self.keep != _ALL

    @property
    def bound(self) -> int:
        return 0 if self.keep == _NONE else self.max_bytes

    @property
    def step(self) -> int:
        """So many bytes are given to the disk at once; what is to go soon is so at any rate, for it
        cannot go before."""
        if not self.is_bounded:
            return self.writeback_bytes
        return min(self.writeback_bytes, max(_STEP_MIN, self.bound // _STEPS))

    @property
    def writes_back(self) -> bool:
        return self.step < _LONG_MAX

    @property
    def reads_next(self) -> bool:
        return self.ahead == WILLNEED

    @property
    def drops_behind(self) -> bool:
        return self.behind == _DROP


KERNEL: Final = CacheRules()
"""All is left to the kernel. This very object: hot paths ask by identity."""


def cache_rules(value: Callable[[str], Any], *, own_bound: bool) -> CacheRules:
    """What the settings come to; `value` reads one."""
    rules = CacheRules(
        keep=value("cache.keep"),
        max_bytes=value("cache.max.bytes"),
        own_bound=own_bound,
        read=value("cache.read"),
        behind=value("cache.read.behind"),
        ahead=value("cache.readahead"),
        writeback_bytes=value("cache.writeback.bytes"),
    )
    return KERNEL if rules == KERNEL else rules
