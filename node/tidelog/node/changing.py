"""Which settings may change while the cluster runs, and which may not stand together."""

from collections.abc import Callable, Container
from typing import Any, Final

from tidelog.kernel.config import Table
from tidelog.kernel.limits import CONFIG_CHANGES_PER_DECISION_MAX
from tidelog.node.log.flush_policy import lacking

_EVERYWHERE: Final = """\
background.threads cache.keep cache.max.bytes cache.read cache.read.behind cache.readahead
cache.writeback.bytes compression.gzip.level compression.lz4.level compression.type
compression.zstd.level config.providers flush.bytes flush.policy
follower.fetch.last.tiered.offset.enable
follower.replication.throttled.rate group.consumer.assignment.interval.ms
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
group.streams.assignment.interval.ms leader.replication.throttled.rate log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate max.connections
max.connections.per.ip max.connections.per.ip.overrides message.max.bytes metric.reporters
min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir
num.replica.fetchers producer.id.expiration.ms remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads
replica.alter.log.dirs.io.max.bytes.per.second share.coordinator.cached.buffer.max.bytes
transaction.partition.verification.enable unclean.leader.election.enable
"""

_ONE_BROKER: Final = """\
cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class
sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol ssl.cipher.suites
ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol
ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""

PER_BROKER: Final = frozenset(_ONE_BROKER.split())
"""May be changed for one broker at a time, not for all at once."""

DYNAMIC: Final = frozenset(_EVERYWHERE.split()) | PER_BROKER
"""Broker settings that may change while brokers run: Kafka's choice, names verbatim, and ours."""


def is_list(table: Table, name: str) -> bool:
    """Whether elements can be appended to it and taken away."""
    row = table.all_rows().get(name)
    return row is not None and row.kind == "list"


def flush_conflict(own: Container[str], value: Callable[[str], Any]) -> str | None:
    """A policy that somebody gives, and that counts on a limit nobody has set."""
    if "flush.policy" not in own:
        return None
    name = lacking(value("flush.policy"), value("flush.messages"), value("flush.ms"))
    return (
        None if name is None else f"flush.policy counts on {name}, which sets no limit; set it too"
    )


def topic_conflict(value: Callable[[str], Any]) -> str | None:
    """What settings of one topic, each fine alone, may not say together; `value` reads one."""
    shortest, longest = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    if shortest > longest:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    if value("remote.storage.enable"):
        return (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return None


def too_many_changes(changes: int, resources: int) -> str | None:
    """Why a request changes more than one may; None where it does not."""
    if max(changes, resources) <= CONFIG_CHANGES_PER_DECISION_MAX:
        return None
    return (
        f"{changes} changes of {resources} resources in one request, the most "
        f"allowed is {CONFIG_CHANGES_PER_DECISION_MAX}."
    )
