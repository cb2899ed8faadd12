"""When a log goes on in a new segment: the active one is full, or too old."""

from tidelog.node.log.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.node.log.settings import LogSettings

INDEX_ENTRY_BYTES_MAX = 12
FAR_GAP = 2**30


def is_far_gap(size_before: int, gap: int) -> bool:
    """Whether a segment may begin so many offsets behind the one before it, which has that size.

    A batch that lies too far behind the start of an empty segment to be indexed in it gets a
    segment of its own. The empty one stays: its name says where the log ended.
    """
    return size_before == 0 and gap > FAR_GAP


class RollLimits:
    """What one segment may hold under one topic's settings; worked out once, asked at each append.

    Whoever keeps it looks whether `segment` and `settings` are still the ones it was made for.
    """

    __slots__ = ("_age_ms_max", "_bytes_max", "_entries_max", "_last_max", "segment", "settings")

    def __init__(self, segment: Segment, settings: LogSettings, directory_name: str) -> None:
        self.segment = segment
        self.settings = settings
        self._bytes_max = settings.segment_bytes
        self._entries_max = settings.index_bytes_max // INDEX_ENTRY_BYTES_MAX
        self._last_max = segment.base + RELATIVE_OFFSET_MAX
        self._age_ms_max = settings.roll_after_ms(directory_name, segment.base)

    def forbid(self, last: int, size: int, timestamp: int, clock_age_ms: int) -> bool:
        """Whether a batch of that size, that ends with that offset, must go to a new segment."""
        segment = self.segment
        return segment.size > 0 and (
            segment.size + size > self._bytes_max
            or len(segment.offsets.offsets) >= self._entries_max
            or last > self._last_max
            or self.is_aged(timestamp, clock_age_ms)
        )

    def cannot_index(self, last: int) -> bool:
        """Whether an offset lies too far behind the segment's first one for its indexes."""
        return last > self._last_max

    def is_aged(self, timestamp: int, clock_age_ms: int) -> bool:
        """By the records' own time, as in Kafka; by the clock where they carry none."""
        first = self.segment.first_timestamp
        age_ms = timestamp - first if first >= 0 and timestamp >= 0 else clock_age_ms
        return age_ms > self._age_ms_max
