"""Every option of the data source: its name, default and rule, and what it does.

Names without `tidelog.` in front are the official connector's, and mean what they mean there.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.kernel.config import (
    Setting,
    Table,
    boolean,
    integer,
    one_of_any_case,
    or_unset,
    some_text,
    words_of,
)
from tidelog.spark.columns import Column
from tidelog.spark.durations import duration_ms

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
_MS_MAX = 24 * 3_600_000
_BYTES = integer(1, 100 * 1024 * 1024)
_BYTES_RULE = "must be between 1 byte and 100 MiB"
_MS = integer(1, _MS_MAX)
_MS_RULE = "must be milliseconds, at most a day"

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
EXACTLY_ONCE_ATOMIC = "exactly-once-atomic"


def _own(name: str, rule: str, doc: str) -> Setting:
    """A text that has no default."""
    return Setting(name, or_unset(some_text), "", rule, doc, unset=True)


def _count(name: str, doc: str) -> Setting:
    row = or_unset(integer(1, INT64_MAX))
    return Setting(name, row, "", "must be a whole number above 0", doc, "long", unset=True)


def _flag(name: str, doc: str, *, default: str = "false") -> Setting:
    return Setting(name, boolean, default, "must be true or false", doc, "boolean")


def _time(name: str, doc: str) -> Setting:
    rule = "must be milliseconds since 1970"
    return Setting(name, or_unset(integer(0, INT64_MAX)), "", rule, doc, "long", unset=True)


def _inert(name: str, doc: str) -> Setting:
    return Setting(name, str, "", "may be anything", doc, effect=False)


_NO_EFFECT = "taken, so that programs need not change; without effect here"

_CONNECTION: Final = (
    _own(
        "kafka.bootstrap.servers",
        "must be host:port, or several of them with commas between",
        "brokers to begin with, of which a live one is enough; it must be given",
    ),
    Setting("kafka.client.id", some_text, "tidelog-spark", "must not be empty", "what brokers see"),
    Setting(
        "kafka.request.timeout.ms", _MS, "30000", _MS_RULE, "how long an answer may take", "int"
    ),
    Setting(
        "kafka.default.api.timeout.ms",
        _MS,
        "60000",
        _MS_RULE,
        "how long metadata, offsets and coordinators are asked for, all repeats together",
        "int",
    ),
    Setting(
        "kafka.security.protocol",
        one_of_any_case("plaintext"),
        "PLAINTEXT",
        "must be PLAINTEXT: TLS and SASL are not spoken yet",
        "how brokers are connected to",
    ),
)

_SOURCE: Final = (
    _own(
        "assign",
        'must be JSON such as {"tides":[0,1]}',
        "the partitions to read; one of assign, subscribe and subscribePattern must be given",
    ),
    _own("subscribe", "must be topics with commas between", "the topics to read"),
    _own(
        "subscribePattern",
        "must be a regular expression as Java writes them",
        "reads the topics whose whole name it matches; a stream finds new ones as they come. What "
        "cannot be read as Java reads it is an error",
    ),
    _own(
        "startingOffsets",
        'must be earliest, latest (streams only), or JSON such as {"tides":{"0":23,"1":-2}}',
        "where to begin where no checkpoint says it: -2 is earliest, -1 latest. Without it a batch "
        "begins at earliest, a stream at latest",
    ),
    _own(
        "startingOffsetsByTimestamp",
        'must be JSON such as {"tides":{"0":1700000000000}}',
        "begins at the first record that is not older and that this isolation level shows; wins "
        "over startingOffsets",
    ),
    _time("startingTimestamp", "the same for all partitions; wins over the other two"),
    Setting(
        "startingOffsetsByTimestampStrategy",
        one_of_any_case("error", "latest"),
        "error",
        "must be error or latest",
        "what to do where no record is that young",
    ),
    _own(
        "endingOffsets",
        'must be latest, or JSON such as {"tides":{"0":50,"1":-1}}',
        "where a batch ends; the offset itself is not read. An end before the beginning is an "
        "error",
    ),
    _own(
        "endingOffsetsByTimestamp",
        'must be JSON such as {"tides":{"0":1700000000000}}',
        "ends a batch before the first record that is not older and that this isolation level "
        "shows; at latest if there is none",
    ),
    _time("endingTimestamp", "the same for all partitions; wins over the other two"),
    _flag(
        "failOnDataLoss",
        "whether to fail if records that should be read are gone, at the beginning of a partition "
        "or at its end, or to warn and go on with those that are there",
        default="true",
    ),
    _count(
        "maxOffsetsPerTrigger",
        "at most so many offsets in a micro-batch, shared out by what each partition has left",
    ),
    _count("minOffsetsPerTrigger", "a micro-batch waits for so many offsets"),
    Setting(
        "maxTriggerDelay",
        duration_ms,
        "15m",
        "must be a duration such as 500ms, 30s or 15m",
        "but no longer than so long",
    ),
    _count("minPartitions", "splits large ranges until there are about so many tasks"),
    _count("maxRecordsPerPartition", "splits ranges of more offsets than that into several tasks"),
    _count(
        "tidelog.minOffsetsPerTask",
        "has one task read several partitions, until it has so many offsets: for small "
        "micro-batches, of which most is the start of tasks",
    ),
    _flag("includeHeaders", "adds the column headers"),
    Setting(
        "kafkaConsumer.pollTimeoutMs",
        _MS,
        "120000",
        _MS_RULE,
        "how long a task waits for records that must be there",
        "long",
    ),
    Setting(
        "kafka.isolation.level",
        one_of_any_case("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "must be read_uncommitted or read_committed",
        "whether records of transactions count before they are committed",
    ),
    Setting("kafka.fetch.max.bytes", _BYTES, "52428800", _BYTES_RULE, "of one answer", "int"),
    Setting(
        "kafka.max.partition.fetch.bytes",
        _BYTES,
        "4194304",
        _BYTES_RULE,
        "of a partition in one answer",
        "int",
    ),
    Setting("kafka.fetch.min.bytes", _BYTES, "1", _BYTES_RULE, "a fetch waits for", "int"),
    Setting(
        "kafka.fetch.max.wait.ms", integer(0, 60_000), "500", "must be 0 to 60000", "at most", "int"
    ),
    _inert("kafka.group.id", _NO_EFFECT),
    _inert("groupIdPrefix", _NO_EFFECT),
    _inert("fetchOffset.numRetries", _NO_EFFECT),
    _inert("fetchOffset.retryIntervalMs", _NO_EFFECT),
    _inert("partition.metadata.cache.ttl.ms", _NO_EFFECT),
    _inert("useDeprecatedOffsetFetching", _NO_EFFECT),
    Setting(
        "tidelog.columns",
        or_unset(words_of(*(column.value for column in Column))),
        "",
        "must be columns with commas between",
        "the columns to read, in this order; what is left out is not decoded",
        "list",
        unset=True,
    ),
    _flag(
        "tidelog.pushdown",
        "lets filters on topic, partition, offset and timestamp narrow what a batch reads; the "
        "session must have spark.sql.python.filterPushdown.enabled",
    ),
    Setting(
        "tidelog.read",
        one_of_any_case("fetch", "segments"),
        "fetch",
        "must be fetch or segments",
        "fetch asks the brokers. segments reads the files of a cluster on this machine, in "
        "tidelog.dataDirs, and asks for what is not beyond doubt there",
    ),
    _own(
        "tidelog.dataDirs",
        "must be folders with commas between",
        "where tidelog.read=segments looks: a cluster's data, a broker's, or folders of logs",
    ),
    Setting(
        "tidelog.batchRows",
        integer(1, 1_000_000),
        "10000",
        "must be 1 to 1000000",
        "the rows of one Arrow batch, about",
        "int",
    ),
    _own(
        "commitOffsetsToGroup",
        "must not be empty",
        "a consumer group that is told how far a stream has come, so that every tool shows its lag",
    ),
    _own(
        "tidelog.initialOffsets",
        "must be a local path",
        "a file that keeps where a stream began, for when its first micro-batch is done again; "
        "without one that of a stream from latest has no rows, so that its checkpoint keeps it",
    ),
    _own("tidelog.asOfOffsets", "as endingOffsets", "another name of endingOffsets"),
    _time("tidelog.asOfTimestamp", "another name of endingTimestamp"),
    _flag("tidelog.includeHeaders", "another name of includeHeaders"),
)

_SINK: Final = (
    _own("topic", "must be a topic", "where all rows go; without it the column topic says so"),
    _flag("includeHeaders", "writes the column headers"),
    _flag("tidelog.includeHeaders", "another name of includeHeaders"),
    Setting(
        "tidelog.delivery",
        one_of_any_case(AT_LEAST_ONCE, EXACTLY_ONCE, EXACTLY_ONCE_ATOMIC),
        AT_LEAST_ONCE,
        "must be at-least-once, exactly-once or exactly-once-atomic",
        "exactly-once: each task writes in a transaction, which the driver commits once all tasks "
        "are done. exactly-once-atomic: the driver writes the whole micro-batch, of at most 64 "
        "MiB, in one transaction",
    ),
    _own(
        "tidelog.sink.id",
        "must be 1 to 200 letters, digits, '.', '_' or '-'",
        "names an exactly-once sink; it must live as long as the checkpoint, and a query with "
        "another checkpoint is refused. Without it the query's id, which the checkpoint keeps",
    ),
    _own(
        "tidelog.sink.markerTopic",
        "must be a topic",
        "under whose name an exactly-once sink keeps how far it is, where no option topic says so",
    ),
    Setting(
        "tidelog.sink.onMissingMarker",
        one_of_any_case("fail", "write"),
        "fail",
        "must be fail or write",
        "what to do where the cluster has forgotten how far the sink was: it keeps that for "
        "offsets.retention.minutes after the last micro-batch. write may write one batch twice",
    ),
    Setting(
        "tidelog.sink.onOtherRows",
        one_of_any_case("fail", "keep"),
        "fail",
        "must be fail or keep",
        "what to do where a micro-batch that is written comes again with other rows: an older "
        "checkpoint, or rows that differ each time they are computed. keep leaves what is written",
    ),
    _own(
        "tidelog.job.id",
        "must be 1 to 200 letters, digits, '.', '_' or '-'",
        "names a batch write: with the same id and the same rows again nothing is written twice, "
        "and other rows are refused. In foreachBatch one id serves all micro-batches",
    ),
    Setting(
        "kafka.acks",
        one_of_any_case("all", "-1", "1", "0"),
        "all",
        "must be all, 1 or 0",
        "who has a record before it counts as written",
    ),
    Setting(
        "kafka.compression.type",
        one_of_any_case("none", "gzip", "snappy", "lz4", "zstd"),
        "none",
        "must be none, gzip, snappy, lz4 or zstd",
        "how batches are compressed",
    ),
    Setting("kafka.batch.size", _BYTES, "262144", _BYTES_RULE, "of a batch of records", "int"),
    Setting("kafka.max.request.size", _BYTES, "4194304", _BYTES_RULE, "of a request", "int"),
    Setting(
        "kafka.buffer.memory", _BYTES, "33554432", _BYTES_RULE, "that wait to be written", "long"
    ),
    Setting(
        "kafka.delivery.timeout.ms",
        _MS,
        "120000",
        _MS_RULE,
        "how long a batch of records is tried to be written",
        "int",
    ),
    Setting(
        "kafka.transaction.timeout.ms",
        _MS,
        "300000",
        _MS_RULE,
        "the longest time from the start of an exactly-once task to the end of all tasks of its "
        "micro-batch; then the cluster aborts what is open, and the micro-batch fails. Brokers "
        "refuse more than their transaction.max.timeout.ms (15 minutes)",
        "int",
    ),
    Setting(
        "checkpointLocation",
        str,
        "",
        "may be anything",
        "Spark's own. Where it is a local folder, the driver of an exactly-once sink reads which "
        "query has it, and tells a micro-batch that is done again from one that was planned again",
    ),
)

_OF_CLIENTS = """auto.include.jmx.reporter client.dns.lookup connections.max.idle.ms
enable.metrics.push metadata.max.age.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms"""
_OF_CONSUMERS = """allow.auto.create.topics auto.commit.interval.ms check.crcs client.rack
exclude.internal.topics group.instance.id heartbeat.interval.ms max.poll.interval.ms
max.poll.records partition.assignment.strategy session.timeout.ms"""
_OF_PRODUCERS = """enable.idempotence linger.ms max.block.ms
max.in.flight.requests.per.connection partitioner.adaptive.partitioning.enable
partitioner.ignore.keys retries"""

REFUSED_OF_SOURCES: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": "a checkpoint keeps how far a stream is; commitOffsetsToGroup "
    "tells a consumer group as well",
    "kafka.interceptor.classes": "there is no JVM here to run them",
    "kafka.key.deserializer": "keys are read as binary; cast the column",
    "kafka.value.deserializer": "values are read as binary; cast the column",
}
REFUSED_OF_SINKS: Final = {
    "kafka.key.serializer": "keys are written as they are: string or binary",
    "kafka.value.serializer": "values are written as they are: string or binary",
    "kafka.interceptor.classes": "there is no JVM here to run them",
    "kafka.partitioner.class": "the column partition says where a row goes, else its key does",
    "kafka.transactional.id": "tidelog.delivery and tidelog.sink.id say it",
}


def _inert_rows(*names: str) -> Sequence[Setting]:
    return [_inert(f"kafka.{name}", _NO_EFFECT) for text in names for name in text.split()]


SOURCE: Final = Table([*_CONNECTION, *_SOURCE], lambda: _inert_rows(_OF_CLIENTS, _OF_CONSUMERS))
SINK: Final = Table([*_CONNECTION, *_SINK], lambda: _inert_rows(_OF_CLIENTS, _OF_PRODUCERS))
