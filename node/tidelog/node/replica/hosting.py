"""Makes this broker's replicas what the cluster's metadata says. No I/O but through the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import (
    NO_LEADER,
    NO_OFFSET,
    ZERO_UUID,
    BrokerId,
    Epoch,
    Offset,
    Partition,
    TopicPartition,
)
from tidelog.kernel.instant import Instant
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.log_settings import log_settings
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.node.replica.follower import Follower
from tidelog.node.replica.leader import AdvanceHighWatermark, Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.throttle import Throttled, throttled_of
from tidelog.node.settings import topic_reader
from tidelog.wire.control import DamagedLog
from tidelog.wire.errors import Rejected
from tidelog.wire.metadata_records import PartitionView, ResourceKind

_SETTINGS_READ_MAX: Final = 1_000


class Roles(Protocol):
    """Who acts on what a replica has become; `replication.py` does."""

    def leads(self, now: Instant, replica: Replica) -> None: ...

    def confirmed(
        self, now: Instant, replica: Replica, advance: AdvanceHighWatermark | None
    ) -> None: ...

    def follows(self, now: Instant, replica: Replica) -> None: ...

    def rests(self, now: Instant, replica: Replica) -> None: ...

    def began_anew(self, replica: Replica, end: Offset) -> None: ...

    def vouches(self, now: Instant, replica: Replica) -> None: ...


class _TopicSettings(NamedTuple):
    log: LogSettings
    min_in_sync: int
    throttled: Throttled | None


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
        roles: Roles,
        logs: LogDirectories,
        broker_settings: Mapping[str, str],
        on_trouble: Callable[[TopicPartition, str], None],
    ) -> None:
        self._me = me
        self._replicas = replicas
        self._roles = roles
        self._logs = logs
        self._settings = broker_settings
        self._on_trouble = on_trouble
        """Told of a partition whose files cannot be used; the others go on."""
        self._unkept: dict[Replica, None] = {}
        """Under `commit`, and not yet known to have all that they vouched for on stable storage."""
        self._leaving: dict[Replica, None] = {}
        """Under `commit` no more, as soon as that is known of them no more."""
        self._read: dict[tuple[tuple[str, str], ...], _TopicSettings] = {}
        """By what a topic sets itself: reading takes longer than all else in opening a log."""

    def sweep(self, image: MetadataImage) -> list[TopicPartition]:
        """Once, with the first image: delete what was deleted while this broker was away. The
        image is whole, so all its partitions are settled next: what was given to others goes then.
        """
        gone = [log.name.key for log in self._logs if not self._is_wanted(image, log)]
        gone += [key for key in self._logs.offline if key[0] not in image.names]
        for name, partition in gone:
            self._logs.delete(name, partition)
        if self._logs.may_lack:
            self._lack(image)
        return gone

    def _lack(self, image: MetadataImage) -> None:
        """What the cluster counts on, and is in no directory, lay in one that is gone: an empty log
        in its place would pass for all there ever was. While a directory cannot be read, nothing
        begins anew that may be in it."""
        for topic in image.topics.values():
            for index, view in enumerate(topic.partitions):
                key = (topic.name, Partition(index))
                if self._me not in view.replicas or self._logs.directory_of(key) is not None:
                    continue
                if view.trusts(self._me) or self._logs.is_out(key):
                    self._logs.lack(*key)

    def _is_wanted(self, image: MetadataImage, log: Log) -> bool:
        """A power loss may have left a log without the file that names its topic. Whoever made the
        name's next topic meanwhile counted on nobody who was away: where nobody counts on this
        replica, its records may be the old topic's."""
        topic = image.names.get(log.name.topic)
        if topic is None:
            return False
        if log.name.topic_id != ZERO_UUID:
            return log.name.topic_id == topic.id
        view = image.partition(topic.id, log.name.partition)
        return view is not None and self._me in (*view.isr, *view.elr, *view.last_known)

    def follow(self, now: Instant, changes: Changes) -> None:
        """Take what changed."""
        if any(kind is ResourceKind.BROKER for kind, _ in changes.configs):
            self._read.clear()
        for topic in changes.deleted:
            for index in range(len(topic.partitions)):
                self._drop(now, (topic.name, Partition(index)))
        for topic, index in changes.partitions:
            self._settle(now, topic, Partition(index))

    def configured(self, now: Instant, image: MetadataImage, changes: Changes) -> None:
        """Give open logs their topics' new settings."""
        for name in self._reconfigured(changes):
            topic = image.names.get(name)
            if topic is None:
                continue
            settings = self._settings_of(topic)
            for index in range(len(topic.partitions)):
                replica = self._replicas.get((name, Partition(index)))
                if replica is None:
                    continue
                replica.log.settings = self._held(replica, settings.log)
                replica.rules = rules_of(settings.log)
                replica.throttled = settings.throttled
                self._take_policy(now, replica)
                leader = replica.leader
                if leader is not None and leader.asks_min_in_sync(settings.min_in_sync):
                    self._roles.confirmed(now, replica, leader.recount())

    def _reconfigured(self, changes: Changes) -> Iterable[str]:
        """Topics whose settings are others now: where a broker's changed, any topic's may be."""
        if any(kind is ResourceKind.BROKER for kind, _ in changes.configs):
            return {replica.topic for replica in self._replicas}
        return [name for kind, name in changes.configs if kind is ResourceKind.TOPIC]

    def _settle(self, now: Instant, topic: TopicView, partition: Partition) -> None:
        view = topic.partitions[partition]
        key = (topic.name, partition)
        if self._me not in view.replicas:
            self._drop(now, key)
            return
        try:
            replica = self._replicas.get(key) or self._open(now, topic, partition)
            self._take_role(now, topic, replica)
        except (CorruptError, Rejected) as fault:
            broken = self._take_offline(now, key)
            if key in self._logs.offline or (broken is not None and broken.log.offline is not None):
                self._replicas.damaged[key] = False
            self._on_trouble(key, str(fault))

    def _take_offline(self, now: Instant, key: TopicPartition) -> Replica | None:
        broken = self._replicas.take_offline(key)
        if broken is not None:
            broken.rest()
            self._roles.rests(now, broken)
        return broken

    def lost(self, now: Instant, keys: Iterable[TopicPartition]) -> None:
        """The directory of these failed: nobody leads or follows them here any more."""
        for key in keys:
            if self._replicas.get(key) is not None:
                self._take_offline(now, key)
                self._replicas.damaged[key] = False

    @property
    def has_damage(self) -> bool:
        """Whether `tend` has anything to see to."""
        return bool(self._replicas.damaged)

    def tend(self, now: Instant, image: MetadataImage) -> tuple[DamagedLog, ...]:
        """See to replicas whose files are damaged; now and then, and when the image changed.

        A replica that the cluster counts on, or may come to count on, is given back, to be told to
        the coordinator. One that it does not count on begins anew, as soon as somebody leads who
        has what it held.
        """
        told = []
        for key, usable in list(self._replicas.damaged.items()):
            topic = image.names.get(key[0])
            view = None if topic is None else image.partition(topic.id, key[1])
            if topic is None or view is None:
                continue
            if not view.trusts(self._me):
                self._set_aside(now, key)
            if self._must_tell(key, view):
                told.append(DamagedLog(topic.id, key[1], view.partition_epoch, usable))
            elif self._may_begin_anew(key, view):
                self._begin_anew(now, topic, key[1])
        return tuple(told)

    def _must_tell(self, key: TopicPartition, view: PartitionView) -> bool:
        """Whether an election may count on this replica, or come to do so. A leader proposes who
        vouched for enough in its epoch: so a replica that vouched for its log in an epoch keeps
        that log until the next epoch has begun."""
        if view.trusts(self._me):
            return self._may_tell(key, view)
        return self._replicas.vouched_in(key) >= view.leader_epoch

    def _set_aside(self, now: Instant, key: TopicPartition) -> None:
        """Follow no more: what is vouched for next is another log."""
        replica = self._replicas.get(key)
        if replica is not None and replica.follower is not None:
            replica.rest()
            self._roles.rests(now, replica)

    def _may_tell(self, key: TopicPartition, view: PartitionView) -> bool:
        """A lone replica does not give up what may still be mended. Where nothing is left to mend,
        it is told, so that what is lost is counted; who leads then was elected since."""
        if len(view.replicas) > 1:
            return True
        return self._is_gone(key) and view.leader != self._me

    def _may_begin_anew(self, key: TopicPartition, view: PartitionView) -> bool:
        """Never where its files may come back with their directory."""
        if len(view.replicas) > 1:
            return view.leader != NO_LEADER and not self._logs.is_out(key)
        return self._is_gone(key)

    def has_told_all(self, image: MetadataImage) -> bool:
        """But for lone replicas whose directory may come back. Should it not, that must be told."""
        return not any(self._waits_alone(key, image) for key in self._replicas.damaged)

    def _waits_alone(self, key: TopicPartition, image: MetadataImage) -> bool:
        topic = image.names.get(key[0])
        view = None if topic is None else image.partition(topic.id, key[1])
        return view is not None and len(view.replicas) == 1 and self._logs.is_out(key)

    def _is_gone(self, key: TopicPartition) -> bool:
        return self._logs.is_lacking(key) and not self._logs.is_out(key)

    def _begin_anew(self, now: Instant, topic: TopicView, partition: Partition) -> None:
        key = (topic.name, partition)
        damaged = self._replicas.get(key)
        end = Offset(0 if damaged is None else damaged.log.end)
        self._remove(now, key)
        self._logs.begin_anew(*key)
        self._settle(now, topic, partition)
        replica = self._replicas.get(key)
        if replica is not None:
            self._roles.began_anew(replica, end)

    def _settings_of(self, topic: TopicView) -> _TopicSettings:
        own = tuple(topic.configs.items())
        found = self._read.get(own)
        if found is None:
            if len(self._read) >= _SETTINGS_READ_MAX:
                self._read.clear()
            value = topic_reader(topic.configs, self._settings)
            found = self._read[own] = _TopicSettings(
                log_settings(topic.configs, self._settings),
                value("min.insync.replicas"),
                throttled_of(topic.configs),
            )
        return found

    def _open(self, now: Instant, topic: TopicView, partition: Partition) -> Replica:
        settings = self._settings_of(topic)
        log = self._logs.create(topic.name, partition, topic.id, settings.log)
        replica = Replica(topic.name, partition, topic.id, log, rules_of(settings.log))
        replica.throttled = settings.throttled
        log.settings = self._held(replica, settings.log)
        replica.policy = log.settings.flush
        replica.kept = Offset(min(self._logs.high_watermark(topic.name, partition), log.end))
        self._replicas.add(replica)
        replica.begin_vouching(now)  # it may have no role for long: nobody may lead
        return replica

    def _take_role(self, now: Instant, topic: TopicView, replica: Replica) -> None:
        view = topic.partitions[replica.partition]
        if view.leader == self._me:
            self._lead(now, topic, replica, view)
        elif view.leader != NO_LEADER:
            self._follow_leader(now, replica, view)
        elif replica.leader is not None or replica.follower is not None:
            replica.rest()
            self._roles.rests(now, replica)

    def _lead(self, now: Instant, topic: TopicView, replica: Replica, view: PartitionView) -> None:
        leader = replica.leader
        if leader is not None and leader.epoch == view.leader_epoch:
            wanted = self._settings_of(topic).min_in_sync
            self._roles.confirmed(now, replica, leader.confirmed(view, wanted))
            return
        log = replica.log
        self._begin_epoch(log, Epoch(view.leader_epoch))
        replica.rest()
        replica.leader = Leader(
            me=self._me,
            view=view,
            end=Offset(log.end),
            high_watermark=replica.kept,
            min_in_sync=self._settings_of(topic).min_in_sync,
            now=now,
        )
        replica.begin_vouching(now)
        replica.leader.own = replica.vouched
        self._roles.leads(now, replica)

    def _follow_leader(self, now: Instant, replica: Replica, view: PartitionView) -> None:
        follower = replica.follower
        if (
            follower is not None
            and follower.leader == view.leader
            and follower.epoch == view.leader_epoch
        ):
            return
        if replica.key in self._replicas.damaged and not view.trusts(self._me):
            self._set_aside(now, replica.key)
            return
        replica.rest()
        replica.follower = Follower(view.leader, view.leader_epoch, replica.kept)
        replica.begin_vouching(now)
        self._roles.follows(now, replica)

    def _held(self, replica: Replica, settings: LogSettings) -> LogSettings:
        """A log that is known to have all it vouched for on stable storage stays under `commit`
        until that is known no more."""
        if settings.flush.commit:
            self._unkept[replica] = None
            return settings
        self._unkept.pop(replica, None)
        self._logs.strike(replica.key)
        if not self._logs.may_be_kept(replica.key):
            return settings
        self._leaving[replica] = None
        return msgspec.structs.replace(settings, flush=FlushRules(commit=True))

    def settle_policies(self, now: Instant, image: MetadataImage) -> None:
        """Now and then: who has flushed all there is shall be known for it, and whoever was known
        for it, and is no more, vouches by its new policy."""
        for replica in list(self._unkept):
            if self._replicas.get(replica.key) is not replica:
                del self._unkept[replica]
            elif replica.by_flush and replica.vouched != NO_OFFSET:
                del self._unkept[replica]
                self._logs.keep(replica.key, replica.topic_id)
        for replica in list(self._leaving):
            topic = image.topics.get(replica.topic_id)
            if topic is None or self._replicas.get(replica.key) is not replica:
                del self._leaving[replica]
            elif not self._logs.may_be_kept(replica.key):
                del self._leaving[replica]
                replica.log.settings = self._held(replica, self._settings_of(topic).log)
                self._take_policy(now, replica)

    def _take_policy(self, now: Instant, replica: Replica) -> None:
        """Its log has the rules of now: whoever waits for a flush that comes no more is told."""
        rules = replica.log.settings.flush
        if rules == replica.policy:
            return
        replica.policy = rules
        replica.begin_vouching(now)
        self._roles.vouches(now, replica)

    def _begin_epoch(self, log: Log, epoch: Epoch) -> None:
        latest = log.latest_epoch
        if latest > epoch:
            # An older copy of the metadata, or of this file, was put back: what follows is unknown.
            reason = f"it was led in epoch {latest}, but the cluster's metadata says {epoch}"
            raise CorruptError(file=log.name.directory, position=0, reason=reason)
        log.begin_epoch(epoch)

    def _drop(self, now: Instant, key: TopicPartition) -> None:
        self._remove(now, key)
        self._logs.delete(*key)

    def _remove(self, now: Instant, key: TopicPartition) -> None:
        replica = self._replicas.remove(key)
        if replica is not None:
            replica.rest()
            self._roles.rests(now, replica)
