"""When a log goes on in a new segment: the active one is full, or too old."""

from tidelog.node.log.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.node.log.settings import LogSettings

INDEX_ENTRY_BYTES_MAX = 12


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

    def is_aged(self, timestamp: int, clock_age_ms: int) -> bool:
        """By the records' own time, as in Kafka; by the clock where they carry none."""
        first = self.segment.first_timestamp
        age_ms = timestamp - first if first >= 0 and timestamp >= 0 else clock_age_ms
        return age_ms > self._age_ms_max
