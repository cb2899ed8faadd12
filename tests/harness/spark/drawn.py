"""Topics and options of Spark's source, drawn from a seed: what a program may find and ask for."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from harness.kafka.old_cluster import Log, Stretch
from harness.logs.old_messages import message_set
from harness.spark.plain import Place
from tidelog.clients.admin.delete_records import delete_records
from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import Isolation, ProducerSettings
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import s
from tidelog.spark.planning import begins_now, ends_now
from tidelog.wire.codecs import Codec
from tidelog.wire.records import MAGIC, Record, build_batch, seal

THEN_MS: Final = 1_700_000_000_000
_ODD_TIMES: Final = (-1, 0, 1, 999, THEN_MS - 10**10, THEN_MS + 10**12, 253_402_300_799_999)
_NAMES: Final = ("", "n", "n", "ä€", "a name of some length", "\U0001f30a")
_PLACEHOLDER: Final = "odd-name"
_NO_UTF_8: Final = b"\xffdd\xed\xa0\x80me"
_SIZES: Final = (0, 1, 3, 20, 200)
_LARGE_BYTES: Final = 3_000
_BATCH_BYTES: Final = (100, 3_000, 16_000)
_SEGMENT_BYTES: Final = ("40000", "1000000")
_ANY_TIME: Final = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
_RECORDS_IN_PLACE_MAX: Final = 5
_OPEN_FOR_NS: Final = s(900)
"""Unfinished transactions stay so: both sources must find the same."""
"""Of a batch that is made here: it must fit into the smallest segment."""


@dataclass
class Drawn:
    """Some topics, and what there is to know to read them."""

    prefix: str
    counts: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic has."""
    has_markers: bool = False
    is_compacted: bool = False
    unfinished: list[TransactionalProducer] = field(default_factory=list)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(name, Partition(n)) for name, count in self.counts.items() for n in range(count)]


def drawn_topics(place: Place, chance: Random, prefix: str) -> Drawn:
    """One to three topics with records of all kinds."""
    drawn = Drawn(prefix)
    drawn.is_compacted = chance.random() < 0.2
    for letter in "abc"[: chance.choice((1, 1, 2, 3))]:
        name = f"{prefix}-{letter}"
        count = drawn.counts[name] = chance.choice((1, 1, 2, 3, 4))
        place.configured(name, count, _configs(chance, compacted=drawn.is_compacted))
    for _ in range(chance.randint(1, 12)):
        _write(place, chance, drawn)
    if chance.random() < 0.2:
        _delete_some(place, chance, drawn)
    return drawn


def _configs(chance: Random, *, compacted: bool) -> dict[str, str]:
    configs = {"segment.bytes": chance.choice(_SEGMENT_BYTES), **_ANY_TIME}
    if chance.random() < 0.25:
        configs["message.timestamp.type"] = "LogAppendTime"
    if compacted:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        configs["segment.bytes"] = _SEGMENT_BYTES[0]
    return configs


def _write(place: Place, chance: Random, drawn: Drawn) -> None:
    """A few batches, plainly or in a transaction that ends in one way or another."""
    kind = chance.choice(("plain", "plain", "plain", "commit", "abort", "open"))
    codec, batch_bytes = chance.choice(list(Codec)), chance.choice(_BATCH_BYTES)
    settings = ProducerSettings(codec=codec, batch_bytes=batch_bytes)
    producer = Producer(place.client, settings)
    if kind != "plain":
        name = f"{drawn.prefix}-{chance.random()}"
        settings = replace(settings, transactional_id=name, transaction_timeout_ns=_OPEN_FOR_NS)
        producer = TransactionalProducer(place.client, settings)
        drawn.has_markers = True
    for topic in drawn.counts:
        producer.open(topic)
    if isinstance(producer, TransactionalProducer):
        producer.begin()
    for _ in range(chance.randint(1, 3)):
        topic, number = chance.choice(drawn.partitions)
        _send(chance, producer, settings, (topic, number), keyed=drawn.is_compacted)
    producer.flush()
    if isinstance(producer, TransactionalProducer):
        _end(kind, producer, drawn)


def _end(kind: str, producer: TransactionalProducer, drawn: Drawn) -> None:
    if kind == "commit":
        producer.commit()
    elif kind == "abort":
        producer.abort()
    else:
        drawn.unfinished.append(producer)


def _send(
    chance: Random,
    producer: Producer,
    settings: ProducerSettings,
    place: TopicPartition,
    *,
    keyed: bool,
) -> None:
    records = drawn_records(chance, chance.choice((1, 2, 7, 40, 300)), keyed=keyed)
    if settings.codec is Codec.NONE and chance.random() < 0.3:
        producer.send_batch(*place, with_odd_names(records[:_RECORDS_IN_PLACE_MAX]))
        return
    for record in records:
        producer.send(place[0], record, place[1])


def drawn_records(chance: Random, count: int, *, keyed: bool = False) -> list[Record]:
    """Their offsets count from 0."""
    base = THEN_MS + chance.randint(0, 100_000)
    odd = chance.random() < 0.3
    return [
        Record(
            at,
            chance.choice(_ODD_TIMES) if odd else base + chance.randint(-500, 500),
            b"key %d" % chance.randint(0, 9) if keyed else _bytes(chance),
            chance.randbytes(_LARGE_BYTES) if chance.random() < 0.02 else _bytes(chance),
            _headers(chance),
        )
        for at in range(count)
    ]


def with_odd_names(records: Sequence[Record]) -> bytearray:
    """A batch in which some header names are not UTF-8."""
    named = [one._replace(headers=(*one.headers, (_PLACEHOLDER, b"odd"))) for one in records]
    batch = build_batch(named)
    changed = bytearray(bytes(batch).replace(_PLACEHOLDER.encode(), _NO_UTF_8))
    seal(changed)
    return changed


def _bytes(chance: Random) -> bytes | None:
    size = chance.choice((-1, *_SIZES))
    return None if size < 0 else chance.randbytes(size)


def _headers(chance: Random) -> tuple[tuple[str, bytes | None], ...]:
    count = chance.choice((0, 0, 0, 1, 3))
    return tuple((chance.choice(_NAMES), _bytes(chance)) for _ in range(count))


def _delete_some(place: Place, chance: Random, drawn: Drawn) -> None:
    client, places = place.client, drawn.partitions
    ends = client.run(ends_now(client.view, places, Isolation.READ_UNCOMMITTED))
    before = {one: chance.randint(0, end) for one, end in ends.items()}
    client.run(delete_records(client.view, before))


def drawn_old_topics(chance: Random, prefix: str) -> tuple[Drawn, dict[str, list[Log]]]:
    """Logs of one or two topics that began in message format 0 or 1; no marker is in them."""
    drawn = Drawn(prefix)
    logs: dict[str, list[Log]] = {}
    for letter in "ab"[: chance.choice((1, 2))]:
        name = f"{prefix}-{letter}"
        count = drawn.counts[name] = chance.choice((1, 2, 3))
        logs[name] = [_old_log(chance) for _ in range(count)]
    return drawn, logs


def _old_log(chance: Random) -> Log:
    log = Log()
    offset = chance.choice((0, 0, 7))
    for magic in sorted(chance.choices((0, 1, 2), k=chance.randint(0, 8))):
        records = []
        for record in drawn_records(chance, chance.choice((1, 2, 7, 40))):
            offset += chance.choice((0, 0, 0, 0, 3))  # compaction has left some out
            plain = record if magic == MAGIC else record._replace(headers=())
            records.append(plain._replace(offset=offset))
            offset += 1
        log.stretches.append(_old_stretch(chance, magic, records))
    return log


def _old_stretch(chance: Random, magic: int, records: list[Record]) -> Stretch:
    if magic == MAGIC:
        return Stretch(bytes(build_batch(records, codec=chance.choice(list(Codec)))), records)
    codec = chance.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    append_time = THEN_MS + chance.randint(0, 100_000) if chance.random() < 0.3 else None
    if magic == 0:
        append_time = -1
        data = message_set(0, records, codec=codec)
    else:
        data = message_set(1, records, codec=codec, append_time=append_time)
    if append_time is None:
        return Stretch(data, records)
    return Stretch(data, [one._replace(timestamp=append_time) for one in records])


# -- options


@dataclass(frozen=True)
class Asked:
    """Options for both sources; `times` apart, for the connector takes markers for records."""

    options: Mapping[str, str]
    times: Mapping[str, int] = field(default_factory=dict)
    where: str = ""
    """A filter of the query, which narrows what is read with tidelog.pushdown."""


def drawn_options(place: Place, chance: Random, drawn: Drawn) -> Asked:
    """How to read these topics: all of them, some, or some of their partitions."""
    options, partitions = _wanted(chance, drawn)
    level = chance.choice(list(Isolation))
    options |= {
        "kafka.isolation.level": level.name.lower(),
        "includeHeaders": chance.choice(("true", "true", "false")),
        "kafkaConsumer.pollTimeoutMs": "20000",
        "kafka.fetch.max.wait.ms": "50",
    }
    chosen = {
        "minPartitions": (None, None, "1", "3", "5"),
        "maxRecordsPerPartition": (None, None, "50", "400"),
        "kafka.max.partition.fetch.bytes": (None, None, "1", "700", "20000"),
        "kafka.fetch.max.bytes": (None, None, "1", "5000"),
    }
    for name, values in chosen.items():
        value = chance.choice(values)
        if value is not None:
            options[name] = value
    if chance.random() < 0.3:
        names = chance.choice((("startingTimestamp",), ("endingTimestamp",), _BOTH_TIMES))
        times = sorted(THEN_MS + chance.randint(-1_000, 101_000) for _ in names)
        return Asked(options, dict(zip(names, times, strict=True)))
    where = _filter(chance, drawn) if chance.random() < 0.3 else ""
    return Asked(options | _range(place, chance, partitions, level), where=where)


def _filter(chance: Random, drawn: Drawn) -> str:
    """One or two conditions of the kinds that are pushed down, and of some that are not."""
    number, time = chance.randint(0, 60), THEN_MS + chance.randint(-1_000, 101_000)
    moment = chance.choice((-(10**12), -6, -5, -3, -2, -1, 0, 1, time, time, time))
    sign = chance.choice((">", ">=", "=", "<", "<="))
    conditions = (
        f"offset {sign} {number}",
        f"offset in ({number}, null)",
        f"offset in ({number}, 3, {number * 2})",
        f"partition {sign} {chance.randint(0, 3)}",
        "partition in (0, 2, null)",
        f"topic = '{chance.choice(list(drawn.counts))}'",
        f"topic in ('{drawn.prefix}-a', null)",
        f"timestamp {sign} timestamp_millis({moment})",
        f"timestamp {sign} timestamp_millis({moment})",
        "key is not null",
        f"not (offset > {number})",
        f"(offset = {number} or partition = 1)",
    )
    return " and ".join(chance.sample(conditions, chance.randint(1, 2)))


_BOTH_TIMES: Final = ("startingTimestamp", "endingTimestamp")


def _wanted(chance: Random, drawn: Drawn) -> tuple[dict[str, str], list[TopicPartition]]:
    names, partitions = list(drawn.counts), drawn.partitions
    match chance.choice(("subscribe", "assign", "subscribePattern")):
        case "subscribe":
            chosen = chance.sample(names, chance.randint(1, len(names)))
            kept = [one for one in partitions if one[0] in chosen]
            return {"subscribe": ",".join(chosen)}, kept
        case "assign":
            kept = sorted(chance.sample(partitions, chance.randint(1, len(partitions))))
            named: dict[str, list[int]] = {}
            for topic, number in kept:
                named.setdefault(topic, []).append(number)
            return {"assign": json.dumps(named)}, kept
        case _:
            pattern = chance.choice((r"\p{Lower}", "[a-z&&[^b]]", r"\w++"))
            kept = [one for one in partitions if pattern != "[a-z&&[^b]]" or one[0][-1] != "b"]
            return {"subscribePattern": rf"\Q{drawn.prefix}-\E{pattern}"}, kept


def _range(
    place: Place, chance: Random, partitions: Sequence[TopicPartition], level: Isolation
) -> dict[str, str]:
    client = place.client
    first = client.run(begins_now(client.view, partitions))
    last = client.run(ends_now(client.view, partitions, level))
    starts = {one: chance.randint(first[one], max(first[one], last[one])) for one in partitions}
    options = {}
    if chance.random() < 0.5:
        options["startingOffsets"] = _json(chance, starts, -2)
    else:
        starts = first
    if chance.random() < 0.5:
        ends = {one: chance.randint(starts[one], max(starts[one], last[one])) for one in starts}
        options["endingOffsets"] = _json(chance, ends, -1)
    return options


def _json(chance: Random, offsets: Mapping[TopicPartition, int], side: int) -> str:
    """Some of them as a side of the log."""
    given: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        given.setdefault(topic, {})[str(number)] = side if chance.random() < 0.2 else offset
    return json.dumps(given)
