"""Kafka's broker settings that have no effect here: known, checked, and listed as such.

A line is a name, Kafka's type, its default (`-` for none, `=` for an empty text) and, where Kafka has
one, the range or the words it takes (`~`: in any case; `!`: not empty). Whoever gives one of them an effect moves its row to `settings.py`.
"""
# ruff: noqa: E501 -- some names of Kafka's classes are longer than a line

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.kernel.config import (
    Setting,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    one_of_any_case,
    or_unset,
    some_text,
    text,
)

_UNSET: Final = "-"
_EMPTY: Final = "="
_ANY_CASE: Final = "~"
_NOT_EMPTY: Final = "!"
_PLACES: Final = {"HOST:PORT": r"[^\s,@]+:\d+", "ID@HOST:PORT": r"\d+@[^\s,@]+:\d+"}
_BOUNDS: Final = {"short": 2**15 - 1, "int": 2**31 - 1, "long": 2**63 - 1}

_REASONS: Final = (
    ("remote.log.", "There is no tiered storage here."),
    ("log.local.", "There is no tiered storage here."),
    ("ssl.", "Listeners are on loopback and not encrypted."),
    ("sasl.", "Clients are not authenticated."),
    ("delegation.token.", "Clients are not authenticated."),
    ("connections.max.reauth.ms", "Clients are not authenticated."),
    ("controller.quorum.", "There is one controller, and no quorum."),
    ("group.share.", "There are no share groups."),
    ("share.coordinator.", "There are no share groups."),
    ("group.streams.", "There are no streams groups."),
    ("group.consumer.", "There is no other choice here."),
    ("group.coordinator.", "One event loop serves each broker."),
    ("offsets.", "Offsets are loaded as they lie, and written as they are."),
    ("transaction.two.phase.", "Transactions are not prepared by others."),
    (
        "transaction.",
        "Each transaction is aborted when its time is up, and its log is read as it lies.",
    ),
    ("replica.alter.log.dirs.", "Replicas do not move between directories."),
    ("num.replica.alter.log.dirs.", "Replicas do not move between directories."),
    ("replica.high.watermark.", "The broker chooses when it writes its checkpoints."),
    ("replica.", "Leaders send to their followers, over shared memory and local sockets."),
    ("num.replica.", "Leaders send to their followers, over shared memory and local sockets."),
    ("listener", "The supervisor chooses where brokers listen: --base-port."),
    ("advertised.listeners", "The supervisor chooses where brokers listen: --base-port."),
    ("log.dir", "The supervisor chooses where data lies: --data."),
    ("metadata.log.", "The metadata log keeps its own sizes."),
    ("num.", "One event loop serves each broker."),
    ("quota.", "There are no quotas."),
)
"""Why, by how the name begins; the first that fits counts."""

_REST: Final = "Nothing here acts on it."

_ROWS: Final = """\
add.partitions.to.txn.retry.backoff.max.ms int 100 0..
add.partitions.to.txn.retry.backoff.ms int 20 1..
advertised.listeners list - !
alter.config.policy.class.name class -
alter.log.dirs.replication.quota.window.num int 11 1..
alter.log.dirs.replication.quota.window.size.seconds int 1 1..
authorizer.class.name string =
background.threads int 10 1..
broker.heartbeat.interval.ms int 2000
broker.id int -1
broker.session.timeout.ms int 9000
client.quota.callback.class class -
config.providers list =
connection.failed.authentication.delay.ms int 100 0..
connections.max.reauth.ms long 0
controlled.shutdown.enable boolean true
controller.listener.names list - !
controller.quorum.append.linger.ms int 25 0..
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list = HOST:PORT
controller.quorum.election.backoff.max.ms int 1000 0..
controller.quorum.election.timeout.ms int 1000 0..
controller.quorum.fetch.max.bytes int 1048576 1..
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
controller.quorum.fetch.timeout.ms int 2000 0..
controller.quorum.request.timeout.ms int 2000 0..
controller.quorum.retry.backoff.ms int 20 0..
controller.quorum.voters list = ID@HOST:PORT
controller.quota.window.num int 11 1..
controller.quota.window.size.seconds int 1 1..
controller.socket.timeout.ms int 30000
cordoned.log.dirs list =
create.topic.policy.class.name class -
delegation.token.expiry.check.interval.ms long 3600000 1..
delegation.token.expiry.time.ms long 86400000 1..
delegation.token.max.lifetime.ms long 604800000 1..
delegation.token.secret.key password -
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list -
fetch.purgatory.purge.interval.requests int 1000
follower.fetch.last.tiered.offset.enable boolean false
group.consumer.assignment.interval.ms int 1000 0..
group.consumer.assignors list uniform,range !
group.consumer.max.assignment.interval.ms int 15000 0..
group.consumer.min.assignment.interval.ms int 0 0..
group.coordinator.append.linger.ms int -1 -1..
group.coordinator.background.threads int 2 1..
group.coordinator.cached.buffer.max.bytes int 1048588 524288..
group.coordinator.rebalance.protocols list classic,consumer,streams !classic|consumer|share|streams
group.coordinator.threads int 4 1..
group.share.assignment.interval.ms int 1000 0..
group.share.assignors list simple !
group.share.delivery.count.limit int 5 2..10
group.share.heartbeat.interval.ms int 5000 1..
group.share.max.assignment.interval.ms int 15000 0..
group.share.max.delivery.count.limit int 10 5..25
group.share.max.heartbeat.interval.ms int 15000 1..
group.share.max.partition.max.record.locks int 4000 2000..10000
group.share.max.record.lock.duration.ms int 60000 30000..3600000
group.share.max.session.timeout.ms int 60000 1..
group.share.max.share.sessions int 2000 1..
group.share.max.size int 200 1..1000
group.share.min.assignment.interval.ms int 0 0..
group.share.min.delivery.count.limit int 2 2..5
group.share.min.heartbeat.interval.ms int 5000 1..
group.share.min.partition.max.record.locks int 100 100..2000
group.share.min.record.lock.duration.ms int 15000 1000..30000
group.share.min.session.timeout.ms int 45000 1..
group.share.partition.max.record.locks int 2000 100..10000
group.share.record.lock.duration.ms int 30000 1000..3600000
group.share.session.timeout.ms int 45000 1..
group.streams.assignment.interval.ms int 1000 0..
group.streams.heartbeat.interval.ms int 5000 1..
group.streams.initial.rebalance.delay.ms int 3000 0..
group.streams.max.assignment.interval.ms int 15000 0..
group.streams.max.heartbeat.interval.ms int 15000 1..
group.streams.max.session.timeout.ms int 60000 1..
group.streams.max.size int 2147483647 1..
group.streams.max.standby.replicas int 2 0..
group.streams.min.assignment.interval.ms int 0 0..
group.streams.min.heartbeat.interval.ms int 5000 1..
group.streams.min.session.timeout.ms int 45000 1..
group.streams.num.standby.replicas int 0 0..
group.streams.session.timeout.ms int 45000 1..
initial.broker.registration.timeout.ms int 60000
inter.broker.listener.name string -
kafka.metrics.polling.interval.secs int 10 1..
kafka.metrics.reporters list =
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners list PLAINTEXT://:9092 !
log.cleaner.io.buffer.load.factor double 0.9
log.cleaner.io.buffer.size int 524288 0..
log.cleaner.threads int 1 0..
log.dir.failure.timeout.ms long 30000 1..
log.flush.offset.checkpoint.interval.ms int 60000 0..
log.flush.start.offset.checkpoint.interval.ms int 60000 0..
max.connection.creation.rate int 2147483647 0..
max.connections.per.ip int 2147483647 0..
max.connections.per.ip.overrides string =
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520 1..
metadata.log.max.snapshot.interval.ms long 3600000 0..
metadata.log.segment.bytes int 1073741824 8388608..
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500 0..
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int 2 1..
metrics.recording.level string INFO
metrics.sample.window.ms long 30000 1..
node.id int - 0..
num.io.threads int 8 1..
num.network.threads int 3 1..
num.recovery.threads.per.data.dir int 2 1..
num.replica.alter.log.dirs.threads int -
num.replica.fetchers int 1 1..
offsets.load.buffer.size int 5242880 1..
offsets.topic.compression.codec int 0
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles list - !broker|controller
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500 1..
quota.window.num int 11 1..
quota.window.size.seconds int 1 1..
remote.fetch.max.wait.ms int 500 1..
remote.list.offsets.request.timeout.ms long 30000 1..
remote.log.index.file.cache.total.size.bytes long 1073741824 1..
remote.log.manager.copier.thread.pool.size int 10 1..
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1..
remote.log.manager.copy.quota.window.num int 11 1..
remote.log.manager.copy.quota.window.size.seconds int 1 1..
remote.log.manager.expiration.thread.pool.size int 10 1..
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num int 11 1..
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
remote.log.manager.follower.thread.pool.size int 2 1..
remote.log.manager.task.interval.ms long 30000 1..
remote.log.manager.thread.pool.size int 2 1..
remote.log.metadata.custom.metadata.max.bytes int 128 0..
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager !
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config. !
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100 1..
remote.log.reader.threads int 10 1..
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config. !
remote.log.storage.system.enable boolean false
replica.alter.log.dirs.io.max.bytes.per.second long 9223372036854775807 0..
replica.fetch.backoff.ms int 1000 0..
replica.fetch.max.bytes int 1048576 0..
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760 0..
replica.fetch.wait.max.ms int 500
replica.high.watermark.checkpoint.interval.ms long 5000
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
replication.quota.window.num int 11 1..
replication.quota.window.size.seconds int 1 1..
request.timeout.ms int 30000
sasl.client.callback.handler.class class -
sasl.enabled.mechanisms list GSSAPI
sasl.jaas.config password -
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.principal.to.local.rules list DEFAULT
sasl.kerberos.service.name string -
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds short 300
sasl.login.refresh.min.period.seconds short 60
sasl.login.refresh.window.factor double 0.8
sasl.login.refresh.window.jitter double 0.05
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.mechanism.inter.broker.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256 ~rs256|es256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.client.credentials.client.id string -
sasl.oauthbearer.client.credentials.client.secret password -
sasl.oauthbearer.clock.skew.seconds int 30
sasl.oauthbearer.expected.audience list =
sasl.oauthbearer.expected.issuer string -
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100
sasl.oauthbearer.jwks.endpoint.url string -
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string -
sasl.oauthbearer.scope.claim.name string scope
sasl.oauthbearer.sub.claim.name string sub
sasl.oauthbearer.token.endpoint.url string -
sasl.server.callback.handler.class class -
sasl.server.max.receive.size int 524288
security.inter.broker.protocol string PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
security.providers string -
share.coordinator.append.linger.ms int -1 -1..
share.coordinator.cached.buffer.max.bytes int 1048588 524288..
share.coordinator.load.buffer.size int 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2 1..
share.coordinator.state.topic.num.partitions int 50 1..
share.coordinator.state.topic.replication.factor short 3 1..
share.coordinator.state.topic.segment.bytes int 104857600 1..
share.coordinator.threads int 1 1..
share.coordinator.write.timeout.ms int 5000 1..
share.fetch.purgatory.purge.interval.requests int 1000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.listen.backlog.size int 50 1..
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.cipher.suites list =
ssl.client.auth string none required|requested|none
ssl.enabled.protocols list TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string https
ssl.engine.factory.class class -
ssl.key.password password -
ssl.keymanager.algorithm string SunX509
ssl.keystore.certificate.chain password -
ssl.keystore.key password -
ssl.keystore.location string -
ssl.keystore.password password -
ssl.keystore.type string JKS
ssl.principal.mapping.rules string DEFAULT
ssl.protocol string TLSv1.3
ssl.provider string -
ssl.secure.random.implementation string -
ssl.trustmanager.algorithm string PKIX
ssl.truststore.certificates password -
ssl.truststore.location string -
ssl.truststore.password password -
ssl.truststore.type string JKS
telemetry.max.bytes int 1048576 1..
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1..
transaction.state.log.load.buffer.size int 5242880 1..
transaction.two.phase.commit.enable boolean false
"""


def without_effect() -> list[Setting]:
    """All of them, in Kafka's order of names."""
    return [_row(*line.split(" ")) for line in _ROWS.splitlines()]


def _row(name: str, kind: str, default: str, allowed: str = "") -> Setting:
    parse, rule = _parser(kind, allowed)
    return Setting(
        name=name,
        parse=or_unset(parse) if default == _UNSET else parse,
        default="" if default in {_UNSET, _EMPTY} else default,
        rule=rule,
        doc=f"Known and checked for Kafka's sake; it has no effect. {_reason(name)}",
        kind=kind,
        effect=False,
        unset=default == _UNSET,
    )


def _reason(name: str) -> str:
    return next((reason for prefix, reason in _REASONS if name.startswith(prefix)), _REST)


def _parser(kind: str, allowed: str) -> tuple[Callable[[str], Any], str]:
    low, _, high = allowed.partition("..")
    if kind == "boolean":
        return boolean, "must be true or false"
    if kind == "double":
        lowest, highest = float(low or "-inf"), float(high or "inf")
        return number(lowest, highest), f"must be a number from {lowest} to {highest}"
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        smallest, largest = int(low or -bound - 1), int(high or bound)
        return integer(smallest, largest), f"must be a whole number from {smallest} to {largest}"
    return _list_parser(allowed) if kind == "list" else _text_parser(allowed)


def _text_parser(allowed: str) -> tuple[Callable[[str], Any], str]:
    if allowed == _NOT_EMPTY:
        return some_text, "may be any text, but not empty"
    words = allowed.lstrip(_ANY_CASE).split("|") if allowed else []
    rule = f"must be {' or '.join(words)}" if words else "may be any text"
    if allowed.startswith(_ANY_CASE):
        return one_of_any_case(*words), f"{rule}, in any case"
    return one_of(*words) if words else text, rule


def _list_parser(allowed: str) -> tuple[Callable[[str], Any], str]:
    if allowed in _PLACES:
        alike = partial(_is_like, _PLACES[allowed])
        return list_of(alike), f"must be a list of different {allowed}"
    words = frozenset(filter(None, allowed.lstrip(_NOT_EMPTY).split("|")))
    rule = f"must be a list of different {' or '.join(sorted(words)) or 'entries'}"
    empty = not allowed.startswith(_NOT_EMPTY)
    fits: Callable[[str], bool] = words.__contains__ if words else bool
    return list_of(fits, empty=empty), rule if empty else f"{rule}, at least one"


def _is_like(pattern: str, given: str) -> bool:
    return re.fullmatch(pattern, given) is not None
