"""Which partition of `__consumer_offsets` keeps a group: Kafka's arithmetic, as clients know it."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16 as there.

    >>> java_hash("abc"), java_hash("polygenelubricants")
    (96354, -2147483648)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, count: int) -> int:
    """The partition of a group's, or a transactional id's, among so many.

    The one number that has no opposite counts as 0.

    >>> partition_of("polygenelubricants", 50), partition_of("abc", 50)
    (0, 4)
    """
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % count
