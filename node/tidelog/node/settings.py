"""The broker's and the topics' settings: Kafka's names verbatim, and ours.

A topic's value wins over the broker's synonym, which wins over the default.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.kernel import limits
from tidelog.kernel.config import Setting, Table, boolean, integer, number, one_of, text, words_of

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
NOT_YET: Final = "Known and checked; nothing acts on it yet."
NO_EFFECT: Final = "Known and checked for Kafka's sake; it has no effect here."


def _flag(name: str, default: str, doc: str, *, effect: bool = True) -> Setting:
    return Setting(name, boolean, default, "must be true or false", doc, "boolean", effect)


def _whole(
    name: str, default: int, low: int, high: int, doc: str, *, effect: bool = True
) -> Setting:
    kind = "int" if high <= INT_MAX else "long"
    rule = f"must be a whole number from {low} to {high}"
    return Setting(name, integer(low, high), str(default), rule, doc, kind, effect)


def _choice(name: str, default: str, words: tuple[str, ...], doc: str) -> Setting:
    return Setting(name, one_of(*words), default, f"must be {' or '.join(words)}", doc)


def _ratio(name: str, default: str, doc: str) -> Setting:
    rule = "must be a number from 0 to 1"
    return Setting(name, number(0, 1), default, rule, doc, "double", effect=False)


def _words(name: str, default: str, words: tuple[str, ...], doc: str) -> Setting:
    rule = f"must be a list of {', '.join(words)}"
    return Setting(name, words_of(*words), default, rule, doc, "list", effect=False)


def _free(name: str, default: str, doc: str, *, effect: bool = True) -> Setting:
    return Setting(name, text, default, "may be any text", doc, "string", effect)


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
        _words(
            "cleanup.policy",
            "delete",
            ("delete", "compact"),
            "What happens to old records. On a compacted topic every record needs a key; "
            "removal itself is not done yet.",
        ),
        _whole("compression.gzip.level", -1, -1, 9, NO_EFFECT, effect=False),
        _whole("compression.lz4.level", 9, 1, 17, NO_EFFECT, effect=False),
        _choice(
            "compression.type", "producer", CODECS, "Only `producer` acts: batches stay as sent."
        ),
        _whole("compression.zstd.level", 3, -131072, 22, NO_EFFECT, effect=False),
        _whole("delete.retention.ms", 86_400_000, 0, LONG_MAX, NOT_YET, effect=False),
        _whole("file.delete.delay.ms", 60_000, 0, LONG_MAX, NOT_YET, effect=False),
        _whole("flush.messages", LONG_MAX, 1, LONG_MAX, NOT_YET, effect=False),
        _whole("flush.ms", LONG_MAX, 0, LONG_MAX, NOT_YET, effect=False),
        _free("follower.replication.throttled.replicas", "", NOT_YET, effect=False),
        _whole("index.interval.bytes", 4096, 0, INT_MAX, "Bytes of log between two index entries."),
        _free("leader.replication.throttled.replicas", "", NOT_YET, effect=False),
        _whole("local.retention.bytes", -2, -2, LONG_MAX, NO_EFFECT, effect=False),
        _whole("local.retention.ms", -2, -2, LONG_MAX, NO_EFFECT, effect=False),
        _whole("max.compaction.lag.ms", LONG_MAX, 1, LONG_MAX, NOT_YET, effect=False),
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
        _ratio("min.cleanable.dirty.ratio", "0.5", NOT_YET),
        _whole("min.compaction.lag.ms", 0, 0, LONG_MAX, NOT_YET, effect=False),
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
        _whole("retention.bytes", -1, -1, LONG_MAX, NOT_YET, effect=False),
        _whole("retention.ms", 604_800_000, -1, LONG_MAX, NOT_YET, effect=False),
        _segment_bytes("segment.bytes", "A segment file is closed when it would pass this size."),
        _whole("segment.index.bytes", 10 * limits.MIB, 4, INT_MAX, "The largest index file."),
        _whole("segment.jitter.ms", 0, 0, LONG_MAX, "Spreads rolls by time over this span."),
        _whole("segment.ms", 604_800_000, 1, LONG_MAX, "A segment is closed at this age."),
        _flag("unclean.leader.election.enable", "false", NOT_YET, effect=False),
    ]
)

SYNONYMS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""A topic's setting and the broker's setting that stands in for it."""


def _without_effect() -> list[Setting]:
    from tidelog.node.kafka_settings import without_effect  # noqa: PLC0415 -- seldom asked for

    return without_effect()


def _stand_in(topic_name: str) -> Setting:
    row = TOPIC.rows[topic_name]
    doc = f"What topics take that do not set {topic_name} themselves."
    return Setting(
        SYNONYMS[topic_name], row.parse, row.default, row.rule, doc, row.kind, row.effect
    )


BROKER: Final = Table(
    [
        *(_stand_in(name) for name in SYNONYMS),
        _flag(
            "auto.create.topics.enable",
            "true",
            "A topic that a client asks for, and that is missing, is made with the defaults.",
        ),
        _free("broker.rack", "", "The rack a broker names itself to clients and assignments."),
        _whole(
            "connections.max.idle.ms",
            600_000,
            1,
            LONG_MAX,
            "A connection without a request for so long is closed.",
        ),
        _whole(
            "default.replication.factor",
            1,
            1,
            limits.BROKERS_MAX,
            "Replicas of a topic whose creator names no number. One, until replication is there.",
        ),
        _flag("delete.topic.enable", "true", "Whether clients may delete topics."),
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
            "socket.request.max.bytes",
            limits.REQUEST_BYTES_MAX,
            1024,
            limits.REQUEST_BYTES_MAX,
            "The largest request taken.",
        ),
    ],
    more=_without_effect,
)


def topic_value(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> Any:  # noqa: ANN401 -- as Setting.read
    """The value in force for a topic: its own, else the broker's stand-in, else the default."""
    own = topic.get(name)
    if own is not None:
        return TOPIC.rows[name].read(own)
    stand_in = SYNONYMS.get(name)
    if stand_in is not None and stand_in in broker:
        return BROKER.rows[stand_in].read(broker[stand_in])
    return TOPIC.rows[name].read(TOPIC.rows[name].default)


def topic_reader(topic: Mapping[str, str], broker: Mapping[str, str]) -> Callable[[str], Any]:
    """`topic_value` bound to one topic on one broker."""

    def read(name: str) -> Any:  # noqa: ANN401 -- as Setting.read
        return topic_value(name, topic, broker)

    return read
