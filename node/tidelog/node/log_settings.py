"""A topic's and its broker's settings, as a log is told of them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.node.flush_settings import rules_for
from tidelog.node.log.cache_rules import cache_rules
from tidelog.node.log.settings import LogSettings
from tidelog.node.settings import topic_reader
from tidelog.wire.codecs import Codec

_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_GZIP_DEFAULT: Final = -1


def log_settings(topic: Mapping[str, str], broker: Mapping[str, str]) -> LogSettings:
    """A topic's settings as its logs want them."""
    value = topic_reader(topic, broker)
    policy = value("cleanup.policy")
    codec = _CODECS[value("compression.type")]
    return LogSettings(
        segment_bytes=value("segment.bytes"),
        segment_ms=value("segment.ms"),
        segment_jitter_ms=value("segment.jitter.ms"),
        index_interval_bytes=value("index.interval.bytes"),
        index_bytes_max=value("segment.index.bytes"),
        max_message_bytes=value("max.message.bytes"),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        codec=codec,
        codec_level=_level(codec, value),
        delete="delete" in policy,
        compact="compact" in policy,
        retention_ms=value("retention.ms"),
        retention_bytes=value("retention.bytes"),
        file_delete_delay_ms=value("file.delete.delay.ms"),
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=value("max.compaction.lag.ms"),
        delete_retention_ms=value("delete.retention.ms"),
        flush=rules_for(topic, broker),
        cache=cache_rules(value, own_bound="cache.max.bytes" in topic),
        producer_expiration_ms=int(broker.get("producer.id.expiration.ms", 86_400_000)),
    )


def _level(codec: Codec | None, value: Callable[[str], Any]) -> int | None:
    """How hard to compress. Of gzip, -1 is the codec's own choice."""
    match codec:
        case Codec.GZIP:
            level: int = value("compression.gzip.level")
            return None if level == _GZIP_DEFAULT else level
        case Codec.ZSTD:
            return int(value("compression.zstd.level"))
        case Codec.LZ4:
            return int(value("compression.lz4.level"))
        case _:
            return None
