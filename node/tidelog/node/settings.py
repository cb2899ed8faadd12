"""The broker's and the topics' settings: Kafka's names verbatim, and ours.

A topic's value wins over the broker's synonyms, which win over the default.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.kernel import limits
from tidelog.kernel.config import (
    Setting,
    Table,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    or_unset,
    text,
    words_of,
)
from tidelog.node.cache_settings import CACHE_ROWS
from tidelog.node.group_settings import GROUP_ROWS
from tidelog.node.log.flush_policy import RULE, parse_policy
from tidelog.node.setting_rows import INT_MAX, LONG_MAX
from tidelog.node.setting_rows import whole as _whole
from tidelog.node.transaction_settings import TRANSACTION_ROWS

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
NOT_YET: Final = "Known and checked; nothing acts on it yet."
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEVEL: Final = "How hard batches are compressed where compression.type={}."
_PLACES_RULE: Final = (
    "must be a list of different directories, none of them in another, without . and .."
)
NO_EFFECT: Final = "Known and checked for Kafka's sake; it has no effect here."


def _flag(name: str, default: str, doc: str, *, effect: bool = True) -> Setting:
    return Setting(name, boolean, default, "must be true or false", doc, "boolean", effect)


def _choice(name: str, default: str, words: tuple[str, ...], doc: str) -> Setting:
    return Setting(name, one_of(*words), default, f"must be {' or '.join(words)}", doc)


def _ratio(name: str, default: str, doc: str) -> Setting:
    rule = "must be a number from 0 to 1"
    return Setting(name, number(0, 1), default, rule, doc, "double")


def _words(name: str, default: str, words: tuple[str, ...], doc: str) -> Setting:
    rule = f"must be a list of {', '.join(words)}"
    return Setting(name, words_of(*words), default, rule, doc, "list")


def _replicas(name: str, description: str) -> Setting:
    rule = "must be * or a list of PARTITION:BROKER"
    return Setting(name, _throttled, "", rule, description, "list")


def _throttled(given: str) -> str:
    pairs = [part.strip().split(":") for part in given.split(",") if part.strip()]
    if given.strip() in {"", "*"} or all(
        len(pair) == 2 and all(number.isdecimal() for number in pair) for pair in pairs
    ):
        return given
    raise ValueError(given)


def _gzip_level(given: str) -> int:
    level = integer(-1, 9)(given)
    if level == 0:
        raise ValueError(given)
    return level


def _places(given: str) -> tuple[str, ...]:
    places = list_of(_is_place, empty=False)(given)
    inside = [f"{place.rstrip('/')}/" for place in places]
    if sum(one.startswith(other) for one in inside for other in inside) > len(inside):
        raise ValueError(given)
    return places


def _is_place(name: str) -> bool:
    return bool(name.strip("/")) and not {".", ".."} & set(name.split("/"))


def _never_or_later(given: str) -> int:
    span = integer(-1, LONG_MAX)(given)
    if span == 0:
        raise ValueError(given)
    return span


def _segment_bytes(name: str, doc: str) -> Setting:
    return Setting(
        name,
        integer(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
        str(1024 * limits.MIB),
        "must be between 4 KiB and 2 GiB - 1",
        doc,
        "int",
    )


TOPIC: Final = Table(
    [
        *CACHE_ROWS,
        _words(
            "cleanup.policy",
            "delete",
            ("delete", "compact"),
            "What happens to old records: segments go by age and size, or the last record of "
            "each key stays, or both; empty: nothing goes. Compaction needs a key in every record.",
        ),
        Setting(
            "compression.gzip.level",
            _gzip_level,
            "-1",
            "must be -1 or a whole number from 1 to 9",
            _LEVEL.format("gzip"),
            "int",
        ),
        _whole(
            "compression.lz4.level",
            9,
            1,
            17,
            f"{_LEVEL.format('lz4')} 9 is the fast way, as with Kafka.",
        ),
        _choice(
            "compression.type",
            "producer",
            CODECS,
            "What batches are kept in; what comes otherwise is compressed anew. "
            "producer: they stay as they were sent.",
        ),
        _whole("compression.zstd.level", 3, -131072, 22, _LEVEL.format("zstd")),
        _whole(
            "delete.retention.ms",
            86_400_000,
            0,
            LONG_MAX,
            "How long a tombstone or a transaction's marker is kept once compaction has passed it.",
        ),
        _whole(
            "file.delete.delay.ms",
            60_000,
            0,
            LONG_MAX,
            "How long the files of a removed segment stay, for readers that are at them.",
        ),
        _whole(
            "flush.messages",
            LONG_MAX,
            1,
            LONG_MAX,
            "So many records unsynced make a log be forced to disk.",
        ),
        _whole(
            "flush.ms",
            LONG_MAX,
            0,
            LONG_MAX,
            "A record unsynced for so long makes its log be forced to disk.",
        ),
        Setting(
            "flush.policy",
            parse_policy,
            "os",
            RULE,
            "When records are forced to disk. os: as the kernel likes; messages, interval, bytes, "
            "joined by + as wanted: after flush.messages records, flush.ms, the broker's "
            "flush.bytes; commit: before anyone is told that they are there. A killed process "
            "loses nothing under any of them, a machine without power what was not forced and no "
            "other replica has. Where it is not given, flush.messages and flush.ms count as in "
            "Kafka; flush.messages=1 is commit.",
        ),
        _replicas(
            "follower.replication.throttled.replicas",
            "Followers that are held to their rate while they are not in sync.",
        ),
        _whole("index.interval.bytes", 4096, 0, INT_MAX, "Bytes of log between two index entries."),
        _replicas(
            "leader.replication.throttled.replicas",
            "Leaders that hold to their rate what they send to those that are not in sync.",
        ),
        _whole("local.retention.bytes", -2, -2, LONG_MAX, NO_EFFECT, effect=False),
        _whole("local.retention.ms", -2, -2, LONG_MAX, NO_EFFECT, effect=False),
        _whole(
            "max.compaction.lag.ms",
            LONG_MAX,
            1,
            LONG_MAX,
            "A record is taken into compaction at this age at the latest.",
        ),
        _whole(
            "max.message.bytes",
            limits.BATCH_BYTES_MAX_DEFAULT,
            0,
            INT_MAX,
            "The largest batch taken, as sent (compressed).",
        ),
        _whole(
            "message.timestamp.after.max.ms",
            3_600_000,
            0,
            LONG_MAX,
            "How far in the future a producer's timestamp may lie.",
        ),
        _whole(
            "message.timestamp.before.max.ms",
            LONG_MAX,
            0,
            LONG_MAX,
            "How far in the past a producer's timestamp may lie.",
        ),
        _choice(
            "message.timestamp.type",
            "CreateTime",
            ("CreateTime", "LogAppendTime"),
            "Whose clock stamps a record: the producer's or the broker's.",
        ),
        _ratio(
            "min.cleanable.dirty.ratio",
            "0.5",
            "The share of a log that compaction has not passed yet, from which on it is worth one.",
        ),
        _whole(
            "min.compaction.lag.ms",
            0,
            0,
            LONG_MAX,
            "A record younger than this is not taken into compaction.",
        ),
        _whole(
            "min.insync.replicas",
            1,
            1,
            INT_MAX,
            "Replicas that must hold a record before acks=all is answered; "
            "never more than the topic has.",
        ),
        _flag("preallocate", "false", NO_EFFECT, effect=False),
        _flag("remote.log.copy.disable", "false", NO_EFFECT, effect=False),
        _flag("remote.log.delete.on.disable", "false", NO_EFFECT, effect=False),
        _flag("remote.storage.enable", "false", NO_EFFECT, effect=False),
        _whole(
            "retention.bytes",
            -1,
            -1,
            LONG_MAX,
            "Of a partition's closed segments the oldest go while this much is left; -1: never.",
        ),
        _whole(
            "retention.ms",
            604_800_000,
            -1,
            LONG_MAX,
            "A closed segment goes when its newest record is as old as this; -1: never.",
        ),
        _segment_bytes("segment.bytes", "A segment file is closed when it would pass this size."),
        _whole("segment.index.bytes", 10 * limits.MIB, 4, INT_MAX, "The largest index file."),
        _whole("segment.jitter.ms", 0, 0, LONG_MAX, "Spreads rolls by time over this span."),
        _whole("segment.ms", 604_800_000, 1, LONG_MAX, "A segment is closed at this age."),
        _flag(
            "unclean.leader.election.enable",
            "false",
            "Whether a replica may lead that lacks acknowledged records, where none that has them "
            "is there; how many are lost stands in the coordinator's log.",
        ),
    ]
)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class Synonym(NamedTuple):
    """A broker's setting that stands in for a topic's; its number may be in other units."""

    name: str
    factor: int = 1
    low: int = -1
    """The lowest number, where the factor is not 1."""

    def text(self, given: str) -> str:
        """In the topic's units. Every number below nothing means: without end."""
        return given if self.factor == 1 else str(max(-1, int(given) * self.factor))


SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    **{row.name: (Synonym(row.name),) for row in CACHE_ROWS},
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "flush.policy": (Synonym("flush.policy"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", HOUR_MS, 0),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS, 1)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
"""A topic's setting and the broker's settings that stand in for it, the strongest first."""


def _without_effect() -> list[Setting]:
    from tidelog.node.kafka_settings import without_effect  # noqa: PLC0415 -- seldom asked for

    return without_effect()


def _stand_ins(topic_name: str) -> list[Setting]:
    """Rows for a topic's synonyms. Of several the last alone has a default."""
    row = TOPIC.rows[topic_name]
    *stronger, weakest = SYNONYMS[topic_name]
    doc = f"What topics take that do not set {topic_name} themselves."
    return [
        *(_stand_in(row, one, doc, unset=True) for one in stronger),
        _stand_in(row, weakest, f"{doc}{_after(stronger)}", unset=False),
    ]


def _after(stronger: list[Synonym]) -> str:
    return f" Counts where {stronger[0].name} is not set." if stronger else ""


def _stand_in(row: Setting, synonym: Synonym, doc: str, *, unset: bool) -> Setting:
    factor = synonym.factor
    parse, rule, kind, default = row.parse, row.rule, row.kind, row.default
    if synonym.name == "log.retention.ms":
        parse, rule = _never_or_later, f"must be -1 or a whole number from 1 to {LONG_MAX}"
    if factor > 1:
        parse, kind = integer(synonym.low, INT_MAX), "int"
        rule = f"must be a whole number from {synonym.low} to {INT_MAX}"
        default = str(int(default) // factor)
    if unset:
        parse, default = or_unset(parse), ""
    return Setting(synonym.name, parse, default, rule, doc, kind, row.effect, unset)


BROKER: Final = Table(
    [
        *(row for name in SYNONYMS for row in _stand_ins(name)),
        *GROUP_ROWS,
        *TRANSACTION_ROWS,
        _flag(
            "auto.create.topics.enable",
            "true",
            "A topic that a client asks for, and that is missing, is made with the defaults.",
        ),
        Setting(
            "broker.rack",
            or_unset(text),
            "",
            "may be any text",
            "The rack a broker names itself to clients and assignments.",
            unset=True,
        ),
        _whole(
            "connections.max.idle.ms",
            600_000,
            1,
            LONG_MAX,
            "A connection without a request for so long is closed.",
        ),
        _whole(
            "default.replication.factor",
            3,
            1,
            limits.BROKERS_MAX,
            "Replicas of a topic whose creator names no number. "
            "Unless it is set, never more than there are brokers.",
        ),
        _flag("delete.topic.enable", "true", "Whether clients may delete topics."),
        _whole(
            "flush.bytes",
            8 * limits.MIB,
            1,
            LONG_MAX,
            "So many bytes unsynced make a log be forced to disk, where flush.policy has bytes.",
        ),
        _flag(
            "auto.leader.rebalance.enable",
            "true",
            "Whether preferred replicas that are in sync again are given their leaderships back, "
            "all leader.imbalance.check.interval.seconds.",
        ),
        _whole(
            "leader.imbalance.check.interval.seconds",
            300,
            1,
            LONG_MAX,
            "How often preferred replicas are given back what they shall lead: all of them, as "
            "with Kafka since 4.0, which has no leader.imbalance.per.broker.percentage any more.",
        ),
        _whole(
            "log.cleaner.backoff.ms",
            15_000,
            0,
            LONG_MAX,
            "How long compaction rests where no log is dirty enough.",
        ),
        _whole(
            "log.cleaner.dedupe.buffer.size",
            134_217_728,
            1_048_576,
            LONG_MAX,
            "Memory for the keys of one round of compaction; what does not fit waits for the next.",
        ),
        _whole(
            "leader.replication.throttled.rate",
            LONG_MAX,
            0,
            LONG_MAX,
            "Bytes a second that a broker sends, of partitions that "
            "leader.replication.throttled.replicas names, to replicas that are not in sync.",
        ),
        _whole(
            "follower.replication.throttled.rate",
            LONG_MAX,
            0,
            LONG_MAX,
            "Bytes a second that a broker is sent of partitions that "
            "follower.replication.throttled.replicas names, while it is not in sync.",
        ),
        _whole(
            "replica.lag.time.max.ms",
            10_000,
            1,
            LONG_MAX,
            "A replica that was not caught up for so long is in sync no more.",
        ),
        Setting(
            "replica.selector.class",
            or_unset(one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
            "",
            f"must be {LEADER_SELECTOR} or {RACK_AWARE_SELECTOR}",
            "Whether consumers that name their rack are sent to a follower in it; "
            "they are where it is the rack-aware one.",
            unset=True,
        ),
        Setting(
            "log.dir",
            _places,
            "log0",
            _PLACES_RULE,
            "As log.dirs, where that is not given.",
            "list",
        ),
        Setting(
            "log.dirs",
            or_unset(_places),
            "",
            _PLACES_RULE,
            "The directories a broker keeps its logs in, each best on a disk of its own: where one "
            "fails, its replicas are offline and all others go on. A relative name is of a "
            "directory in DATA/broker-ID, an absolute path of one that holds a directory broker-ID "
            "for each broker. Unless told otherwise the logs are in log0.",
            "list",
            unset=True,
        ),
        _flag("log.cleaner.enable", "true", "Whether compacted topics are compacted."),
        Setting(
            "log.cleaner.io.max.bytes.per.second",
            number(1, 1.7976931348623157e308),
            "1.7976931348623157E308",
            "must be a number of at least 1",
            "What compaction may read and write in a second, together.",
            "double",
        ),
        _whole(
            "log.retention.check.interval.ms",
            300_000,
            1,
            LONG_MAX,
            "How often logs are looked at for what is old, or too much.",
        ),
        _whole(
            "log.initial.task.delay.ms",
            30_000,
            0,
            LONG_MAX,
            "How long after its start a broker first looks for what is old, or too much.",
        ),
        _whole(
            "fetch.max.bytes",
            57_671_680,
            1024,
            INT_MAX,
            "The most one fetch answer carries, beside one whole batch.",
        ),
        _whole(
            "max.connections", limits.CONNECTIONS_MAX, 1, INT_MAX, "Clients connected at one time."
        ),
        _whole(
            "max.incremental.fetch.session.cache.slots",
            1_000,
            0,
            INT_MAX,
            "Fetch sessions remembered; 0 turns them off.",
        ),
        _whole(
            "max.request.partition.size.limit",
            limits.PARTITIONS_PER_REQUEST_MAX,
            1,
            INT_MAX,
            "Partitions one request may name.",
        ),
        _whole(
            "num.partitions", 1, 1, limits.PARTITIONS_PER_TOPIC_MAX, "Partitions of a new topic."
        ),
        _whole(
            "producer.id.expiration.ms",
            86_400_000,
            1,
            INT_MAX,
            "A producer id that wrote nothing for so long is forgotten.",
        ),
        _whole(
            "queued.max.request.bytes",
            limits.RECEIVED_BYTES_MAX,
            -LONG_MAX - 1,
            LONG_MAX,
            "Memory for requests that are being received, of all clients together; a client whose "
            "request does not fit in waits. Without a limit if below 1.",
        ),
        _whole(
            "socket.request.max.bytes",
            limits.REQUEST_BYTES_MAX,
            1024,
            limits.REQUEST_BYTES_MAX,
            "The largest request taken.",
        ),
    ],
    more=_without_effect,
)


def topic_text(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> str:
    """The text in force for a topic: its own, else the broker's stand-in, else the default."""
    own = topic.get(name)
    if own is not None:
        return own
    for synonym in SYNONYMS.get(name, ()):
        given = broker.get(synonym.name)
        if given is not None and (given or not BROKER.rows[synonym.name].unset):
            return synonym.text(given)
    return TOPIC.rows[name].default


def topic_value(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> Any:  # noqa: ANN401 -- as Setting.read
    """`topic_text`, read."""
    return TOPIC.rows[name].read(topic_text(name, topic, broker))


def topic_reader(topic: Mapping[str, str], broker: Mapping[str, str]) -> Callable[[str], Any]:
    """`topic_value` bound to one topic on one broker."""

    def read(name: str) -> Any:  # noqa: ANN401 -- as Setting.read
        return topic_value(name, topic, broker)

    return read
