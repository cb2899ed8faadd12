"""Makes this broker's replicas what the cluster's metadata says. No I/O but through the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import ZERO_UUID, BrokerId, Epoch, Offset, Partition, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.waiting import Waiting
from tidelog.node.settings import topic_reader
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import Rejected
from tidelog.wire.metadata_records import PartitionView, ResourceKind

_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_SETTINGS_READ_MAX: Final = 1_000
_GZIP_DEFAULT: Final = -1


class Hosting:
    """Follows the metadata image: opens, leads, hands over and deletes partitions.

    Invariant: after `follow`, a replica is here exactly where the image says so, and leads exactly
    where the image names this broker as leader, under the image's leader epoch; but for those
    whose files cannot be used, which are offline.
    """

    def __init__(
        self,
        *,
        me: BrokerId,
        replicas: Replicas,
        waiting: Waiting,
        logs: LogDirectory,
        broker_settings: Mapping[str, str],
        on_trouble: Callable[[TopicPartition, str], None],
    ) -> None:
        self._me = me
        self._replicas = replicas
        self._waiting = waiting
        self._logs = logs
        self._settings = broker_settings
        self._on_trouble = on_trouble
        """Told of a partition whose files cannot be used; the others go on."""
        self._read: dict[tuple[tuple[str, str], ...], LogSettings] = {}
        """By what a topic sets itself: reading takes longer than all else in opening a log."""

    def sweep(self, image: MetadataImage) -> None:
        """Once, with the first image: delete what was deleted while this broker was away."""
        for log in self._logs:
            topic = image.names.get(log.topic)
            if topic is None or log.name.topic_id not in {topic.id, ZERO_UUID}:
                self._logs.delete(log.topic, log.partition)
        for name, partition in list(self._logs.offline):
            if name not in image.names:
                self._logs.delete(name, partition)

    def follow(self, now: Instant, changes: Changes) -> None:
        """Take what changed."""
        if any(kind is ResourceKind.BROKER for kind, _ in changes.configs):
            self._read.clear()
        for topic in changes.deleted:
            for index in range(len(topic.partitions)):
                self._drop(now, (topic.name, Partition(index)))
        for topic, index in changes.partitions:
            self._settle(now, topic, Partition(index))

    def configured(self, image: MetadataImage, changes: Changes) -> None:
        """Give open logs their topics' new settings."""
        for name in self._reconfigured(changes):
            topic = image.names.get(name)
            if topic is None:
                continue
            settings = self._settings_of(topic)
            for index in range(len(topic.partitions)):
                replica = self._replicas.get((name, Partition(index)))
                if replica is not None:
                    replica.log.settings = settings
                    replica.rules = rules_of(settings)

    def _reconfigured(self, changes: Changes) -> Iterable[str]:
        """Topics whose settings are others now: where a broker's changed, any topic's may be."""
        if any(kind is ResourceKind.BROKER for kind, _ in changes.configs):
            return {replica.topic for replica in self._replicas}
        return [name for _, name in changes.configs]

    def _settle(self, now: Instant, topic: TopicView, partition: Partition) -> None:
        view = topic.partitions[partition]
        key = (topic.name, partition)
        if self._me not in view.replicas:
            self._drop(now, key)
            return
        try:
            replica = self._replicas.get(key) or self._open(topic, partition)
            self._lead_or_not(now, replica, view)
        except (CorruptError, Rejected) as fault:
            self._replicas.take_offline(key)
            self._waiting.disturbed(now, key)
            self._on_trouble(key, str(fault))

    def _settings_of(self, topic: TopicView) -> LogSettings:
        own = tuple(topic.configs.items())
        found = self._read.get(own)
        if found is None:
            if len(self._read) >= _SETTINGS_READ_MAX:
                self._read.clear()
            found = self._read[own] = log_settings(topic.configs, self._settings)
        return found

    def _open(self, topic: TopicView, partition: Partition) -> Replica:
        settings = self._settings_of(topic)
        log = self._logs.create(topic.name, partition, topic.id, settings)
        replica = Replica(topic.name, partition, topic.id, log, rules_of(settings))
        self._replicas.add(replica)
        return replica

    def _lead_or_not(self, now: Instant, replica: Replica, view: PartitionView) -> None:
        if view.leader != self._me:
            if replica.leader is not None:
                replica.leader = None
                self._waiting.disturbed(now, replica.key)
            return
        if replica.leader is not None and replica.leader.epoch == view.leader_epoch:
            return
        log = replica.log
        self._begin_epoch(log, Epoch(view.leader_epoch))
        replica.leader = Leader(
            me=self._me,
            epoch=Epoch(view.leader_epoch),
            in_sync={self._me: Offset(log.end)},
            high_watermark=self._logs.high_watermark(replica.topic, replica.partition),
            min_in_sync=1,
        )
        replica.leader.started()
        self._waiting.disturbed(now, replica.key)

    def _begin_epoch(self, log: Log, epoch: Epoch) -> None:
        latest = log.latest_epoch
        if latest > epoch:
            # An older copy of the metadata, or of this file, was put back: what follows is unknown.
            reason = f"it was led in epoch {latest}, but the cluster's metadata says {epoch}"
            raise CorruptError(file=log.name.directory, position=0, reason=reason)
        log.begin_epoch(epoch)

    def _drop(self, now: Instant, key: TopicPartition) -> None:
        if self._replicas.remove(key) is not None:
            self._waiting.disturbed(now, key)
        self._logs.delete(*key)


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
        flush_messages=value("flush.messages"),
        flush_ms=value("flush.ms"),
        producer_expiration_ms=int(broker.get("producer.id.expiration.ms", 86_400_000)),
    )


def _level(codec: Codec | None, value: Callable[[str], Any]) -> int | None:
    """How hard to compress. Of gzip, -1 is the codec's own choice; lz4 has one level here."""
    match codec:
        case Codec.GZIP:
            level: int = value("compression.gzip.level")
            return None if level == _GZIP_DEFAULT else level
        case Codec.ZSTD:
            return int(value("compression.zstd.level"))
        case _:
            return None
