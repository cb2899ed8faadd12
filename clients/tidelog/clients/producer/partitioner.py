"""Which partition a record goes to, as Java decides: by key, else batch by batch in turn."""

from tidelog.kernel.ids import Partition

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash all Kafka clients share, unsigned.

    >>> murmur2(b"21") == -973932308 & 0xFFFF_FFFF
    True
    """
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ word
    if whole < length:
        state ^= int.from_bytes(data[whole:], "little")
        state = state * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_of_key(key: bytes, count: int) -> Partition:
    """The same key, the same partition, whatever client wrote it."""
    assert count > 0, count
    return Partition((murmur2(key) & 0x7FFF_FFFF) % count)


class StickyPartitioner:
    """Records without a key: one partition until its batch is full, then the next.

    Java picks the next at random so that many producers spread; here `first` does that, and a run
    stays repeatable.
    """

    def __init__(self, first: int = 0) -> None:
        self._current = first

    def choose(self, count: int) -> Partition:
        assert count > 0, count
        return Partition(self._current % count)

    def batch_closed(self) -> None:
        """The chosen partition's batch is full."""
        self._current += 1
