"""What a log is told about its topic, with Kafka's defaults."""

from typing import Final

from msgspec import Struct

from tidelog.kernel.limits import BATCH_BYTES_MAX_DEFAULT, MIB
from tidelog.node.log.cache_rules import KERNEL, CacheRules
from tidelog.node.log.flush_policy import OS, FlushRules
from tidelog.wire.codecs import Codec
from tidelog.wire.crc import crc32c

LONG_MAX: Final = 2**63 - 1
HOUR_MS: Final = 3_600_000


class LogSettings(Struct, frozen=True):
    """One topic's settings as its logs use them; Kafka's name stands in each comment."""

    segment_bytes: int = 1024 * MIB  # segment.bytes
    segment_ms: int = 7 * 24 * HOUR_MS  # segment.ms
    segment_jitter_ms: int = 0  # segment.jitter.ms
    index_interval_bytes: int = 4096  # index.interval.bytes
    index_bytes_max: int = 10 * MIB  # segment.index.bytes
    max_message_bytes: int = BATCH_BYTES_MAX_DEFAULT  # max.message.bytes
    log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int = LONG_MAX  # message.timestamp.before.max.ms
    timestamp_after_max_ms: int = HOUR_MS  # message.timestamp.after.max.ms
    codec: Codec | None = None  # compression.type; None where it is producer
    codec_level: int | None = None  # compression.gzip.level and its like; None is the default
    delete: bool = True  # cleanup.policy has delete
    compact: bool = False  # cleanup.policy has compact
    retention_ms: int = -1  # retention.ms; the broker gives the default, 7 days
    retention_bytes: int = -1  # retention.bytes
    file_delete_delay_ms: int = 60_000  # file.delete.delay.ms
    min_cleanable_dirty_ratio: float = 0.5  # min.cleanable.dirty.ratio
    min_compaction_lag_ms: int = 0  # min.compaction.lag.ms
    max_compaction_lag_ms: int = LONG_MAX  # max.compaction.lag.ms
    delete_retention_ms: int = 24 * HOUR_MS  # delete.retention.ms
    flush: FlushRules = OS  # flush.policy, flush.messages, flush.ms, flush.bytes
    cache: CacheRules = KERNEL  # cache.keep and its like
    producer_expiration_ms: int = 24 * HOUR_MS  # producer.id.expiration.ms, a broker's key

    @property
    def roll_ms(self) -> int:
        """How old an active segment gets: compaction leaves it alone, but must not wait long."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    def roll_after_ms(self, directory_name: str, base: int) -> int:
        """As `roll_ms`, of one segment: the jitter spreads the rolls of many logs.

        It is the same each time for the same segment.
        """
        span = self.segment_jitter_ms
        if not span:
            return self.roll_ms
        return self.roll_ms - int(crc32c(f"{directory_name} {base}".encode("ascii"))) % span
