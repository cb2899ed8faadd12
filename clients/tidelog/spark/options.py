"""The options of a reader or writer, read and checked: what a program asks for, as values.

Names count in any case, as everywhere in Spark. A mistake is an error that says what is right: an
option that is not known names the nearest one that is.
"""

import difflib
import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tidelog.clients.asking import Address
from tidelog.clients.settings import Acks, Isolation
from tidelog.kernel.config import SettingError, Table
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.topic_names import fault_of_name
from tidelog.spark.columns import PLAIN, Columns
from tidelog.spark.java_patterns import JavaPatternError, java_matcher
from tidelog.spark.option_rows import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    REFUSED_OF_SINKS,
    REFUSED_OF_SOURCES,
    SINK,
    SOURCE,
)
from tidelog.wire.codecs import Codec

EARLIEST = -2
LATEST = -1
_LEAST = {
    0: "a time in milliseconds since 1970",
    EARLIEST: "an offset, -2 (earliest) or -1 (latest)",
}
_SECURITY = ("kafka.ssl.", "kafka.sasl.")
_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


class OptionError(ValueError):
    """An option that cannot be taken; the text is one sentence that says what is right."""


class Mode(Enum):
    """How the source is read."""

    BATCH = auto()
    STREAM = auto()


class Sides(Enum):
    """Where a range begins or ends, for all partitions alike."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition; EARLIEST and LATEST are among them."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Times:
    """The first record that is not older, by partition; `everywhere` where it is one time."""

    by_partition: Mapping[TopicPartition, int]
    everywhere: int | None = None


Bound = Sides | Offsets | Times


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of topics whose whole name matches, as Java reads the pattern."""

    pattern: str


Wanted = Assigned | Subscribed | Matching


@dataclass(frozen=True, slots=True)
class Connection:
    """How a cluster is reached; equal ones share their connections."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_ms: int
    api_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Fetching:
    """How records are asked for."""

    isolation: Isolation
    answer_bytes_max: int
    partition_bytes_max: int
    bytes_min: int
    wait_ms: int
    patience_ms: int
    """How long a task waits for records that must be there."""
    batch_rows: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch takes."""

    offsets_max: int | None
    offsets_min: int | None
    delay_ms: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All that a reader is told."""

    connection: Connection | None
    """None: nobody is asked, only files are read."""
    wanted: Wanted
    starting: Bound
    ending: Bound
    latest_if_too_young: bool
    fail_on_data_loss: bool
    partitions_min: int | None
    records_per_partition_max: int | None
    offsets_per_task_min: int
    columns: Columns
    pushdown: bool
    fetching: Fetching
    data_dirs: tuple[str, ...]
    """Whose segment files are read where they can be; none: all is fetched."""
    limits: Limits
    group: str | None
    initial_offsets: str | None


@dataclass(frozen=True, slots=True)
class Producing:
    """How records are written."""

    acks: Acks
    codec: Codec
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a writer is told."""

    connection: Connection
    topic: str | None
    with_headers: bool
    delivery: str
    sink_id: str | None
    marker_topic: str | None
    writes_without_marker: bool
    keeps_other_rows: bool
    job_id: str | None
    checkpoint: str | None
    producing: Producing


class _Given:
    """Options by the name of their row."""

    def __init__(self, table: Table, refused: Mapping[str, str], given: Mapping[str, str]) -> None:
        self._table = table
        known = {name.lower(): name for name in table.all_rows()}
        not_here = {name.lower(): (name, why) for name, why in refused.items()}
        self._given: dict[str, str] = {}
        for name, text in given.items():
            self._check_known(name, known, not_here)
            self._given[known[name.lower()]] = str(text)

    def _check_known(
        self, name: str, known: Container[str], not_here: Mapping[str, tuple[str, str]]
    ) -> None:
        lowered = name.lower()
        if lowered in not_here:
            own, why = not_here[lowered]
            raise OptionError(f"option {own} is refused: {why}")
        if lowered.startswith(_SECURITY):
            raise OptionError(
                f"option {name} is refused: TLS and SASL are not spoken yet; connect to a "
                "listener that is PLAINTEXT, and leave out kafka.ssl.* and kafka.sasl.*"
            )
        if lowered not in known:
            raise OptionError(_unknown(self._table, name))

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __call__(self, name: str) -> Any:  # noqa: ANN401 -- a row's type is known to its reader
        try:
            return self._table.read(self._given, name)
        except SettingError as error:
            raise OptionError(f"option {error}") from None

    def first(self, *names: str) -> str | None:
        """The one of these that is given."""
        return next((name for name in names if name in self._given), None)

    def either(self, name: str, alias: str) -> Any:  # noqa: ANN401 -- as above
        """One option under two names."""
        if name in self._given and alias in self._given:
            raise OptionError(f"options {name} and {alias} are two names of one: give one of them")
        return self(alias if alias in self._given else name)

    def check_all(self) -> None:
        """Also those that nothing here asks for."""
        for name in self._given:
            self(name)


def source_options(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """What a reader is told; OptionError where that cannot be."""
    options = _Given(SOURCE, REFUSED_OF_SOURCES, given)
    options.check_all()
    data_dirs = _data_dirs(options)
    offline = bool(data_dirs) and mode is Mode.BATCH and "kafka.bootstrap.servers" not in options
    return SourceOptions(
        connection=None if offline else _connection(options),
        wanted=_wanted(options),
        starting=_starting(options, mode),
        ending=_ending(options, mode),
        latest_if_too_young=options("startingOffsetsByTimestampStrategy").lower() == "latest",
        fail_on_data_loss=options("failOnDataLoss"),
        partitions_min=options("minPartitions"),
        records_per_partition_max=options("maxRecordsPerPartition"),
        offsets_per_task_min=options("tidelog.minOffsetsPerTask") or 1,
        columns=_columns(options),
        pushdown=options("tidelog.pushdown"),
        fetching=_fetching(options),
        data_dirs=data_dirs,
        limits=_limits(options, mode),
        group=_only_of_streams(options, mode, "commitOffsetsToGroup"),
        initial_offsets=_only_of_streams(options, mode, "tidelog.initialOffsets"),
    )


def columns_of(given: Mapping[str, str]) -> Columns:
    """Only the columns: Spark asks for the schema before it says what it will do with it."""
    return _columns(_Given(SOURCE, REFUSED_OF_SOURCES, given))


def sink_options(given: Mapping[str, str], mode: Mode) -> SinkOptions:
    """What a writer is told; OptionError where that cannot be."""
    options = _Given(SINK, REFUSED_OF_SINKS, given)
    options.check_all()
    delivery = options("tidelog.delivery").lower()
    job_id = _id(options, "tidelog.job.id")
    if mode is Mode.BATCH and delivery != AT_LEAST_ONCE and job_id is None:
        raise OptionError(
            f"option tidelog.delivery={delivery}: a batch write has no name of its own by which it "
            "would be known when it is made again; give it one with tidelog.job.id"
        )
    if mode is Mode.STREAM and job_id is not None:
        raise OptionError("option tidelog.job.id names batch writes; a stream has tidelog.sink.id")
    if job_id is not None:
        delivery = EXACTLY_ONCE if delivery == AT_LEAST_ONCE else delivery
    topic = _topic(options, "topic")
    marker_topic = _topic(options, "tidelog.sink.markerTopic") or topic
    if delivery != AT_LEAST_ONCE and marker_topic is None:
        raise OptionError(
            f"option tidelog.delivery={delivery} needs the option topic, or "
            "tidelog.sink.markerTopic where the column topic says where rows go"
        )
    producing = _producing(options)
    if delivery != AT_LEAST_ONCE and producing.acks is not Acks.ALL:
        raise OptionError(f"option tidelog.delivery={delivery} needs kafka.acks=all")
    return SinkOptions(
        connection=_connection(options),
        topic=topic,
        with_headers=options.either("includeHeaders", "tidelog.includeHeaders"),
        delivery=delivery,
        sink_id=_id(options, "tidelog.sink.id"),
        marker_topic=marker_topic,
        writes_without_marker=options("tidelog.sink.onMissingMarker").lower() == "write",
        keeps_other_rows=options("tidelog.sink.onOtherRows").lower() == "keep",
        job_id=job_id,
        # A write in foreachBatch is not the only one of its micro-batch, whose plan tells nothing.
        checkpoint=options("checkpointLocation") if mode is Mode.STREAM else None,
        producing=producing,
    )


def _unknown(table: Table, name: str) -> str:
    other = SOURCE if table is SINK else SINK
    side = "source" if table is SINK else "sink"
    lowered = {one.lower(): one for one in table.all_rows()}
    if name.lower() in {one.lower() for one in other.all_rows()}:
        return f"option {name} is one of the {side}, not of this side"
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f"unknown option {name!r}" + (f"; did you mean {lowered[near[0]]!r}?" if near else "")


def _connection(options: _Given) -> Connection:
    if "kafka.bootstrap.servers" not in options:
        raise OptionError("option kafka.bootstrap.servers is missing: host:port of a broker")
    return Connection(
        tuple(_address(one) for one in options("kafka.bootstrap.servers").split(",")),
        options("kafka.client.id"),
        options("kafka.request.timeout.ms"),
        options("kafka.default.api.timeout.ms"),
    )


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise OptionError(f"option kafka.bootstrap.servers: {text!r} is not host:port")
    return Address(host.strip("[]"), int(port))


def _wanted(options: _Given) -> Wanted:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(ways) != 1:
        said = " and ".join(ways) or "none"
        raise OptionError(
            f"exactly one of the options assign, subscribe and subscribePattern: here {said}"
        )
    text = options(ways[0])
    if ways == ["assign"]:
        return Assigned(_partitions("assign", text))
    if ways == ["subscribe"]:
        topics = tuple(one.strip() for one in text.split(",") if one.strip())
        if not topics:
            raise OptionError("option subscribe names no topic")
        _check_topics("subscribe", topics)
        return Subscribed(topics)
    try:
        java_matcher(text)
    except JavaPatternError as error:
        raise OptionError(f"option subscribePattern={text!r}: {error}") from None
    return Matching(text)


def _starting(options: _Given, mode: Mode) -> Bound:
    name = options.first("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    if name is None:
        return Sides.EARLIEST if mode is Mode.BATCH else Sides.LATEST
    bound = _bound(name, options(name))
    if mode is Mode.BATCH and _has(bound, LATEST):
        raise OptionError(f"option {name}: a batch that begins at latest reads nothing")
    return bound


def _ending(options: _Given, mode: Mode) -> Bound:
    names = ("endingTimestamp", "tidelog.asOfTimestamp", "endingOffsetsByTimestamp")
    given = [one for one in (*names, "endingOffsets", "tidelog.asOfOffsets") if one in options]
    if not given:
        return Sides.LATEST
    if mode is Mode.STREAM:
        raise OptionError(f"option {given[0]}: a stream has no end; read a batch instead")
    bound = _bound(given[0], options(given[0]))
    if _has(bound, EARLIEST):
        raise OptionError(f"option {given[0]}: a batch that ends at earliest reads nothing")
    return bound


def _has(bound: Bound, side: int) -> bool:
    if isinstance(bound, Offsets):
        return side in bound.by_partition.values()
    return isinstance(bound, Sides) and bound.value == side


def _bound(name: str, text: str | int) -> Bound:
    if isinstance(text, int):
        return Times({}, text)
    if "ByTimestamp" in name:
        return Times(_numbers(name, text, 0))
    side = {"earliest": Sides.EARLIEST, "latest": Sides.LATEST}.get(text.strip().lower())
    return side or Offsets(_numbers(name, text, EARLIEST))


def _numbers(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    """`{"topic":{"0":23}}` as the connector writes it."""
    try:
        found = {
            (str(topic), Partition(int(number))): _whole(value)
            for topic, partitions in json.loads(text).items()
            for number, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        shape = '{"topic":{"0":23}}'
        raise OptionError(f"option {name}={text!r}: must be JSON such as {shape}") from None
    _check_partitions(name, found)
    for (topic, number), value in found.items():
        if value < least:
            raise OptionError(
                f"option {name}: {value} for {topic}-{number} must be {_LEAST[least]}"
            )
    return found


def _topic(options: _Given, name: str) -> str | None:
    found: str | None = options(name)
    if found is not None:
        _check_topics(name, [found])
    return found


def _check_topics(option: str, topics: Iterable[str]) -> None:
    """Refuse a name that no topic can have: the cluster's answer would name no rule."""
    for topic in topics:
        fault = fault_of_name(topic)
        if fault is not None:
            raise OptionError(f"option {option}: {fault}")


def _check_partitions(option: str, partitions: Iterable[TopicPartition]) -> None:
    for topic, number in partitions:
        _check_topics(option, [topic])
        if number < 0:
            raise OptionError(
                f"option {option}: topic {topic!r} has no partition {number}; the first is 0"
            )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic":[0,1]}`."""
    try:
        found = [
            (str(topic), Partition(_whole(number)))
            for topic, numbers in json.loads(text).items()
            for number in numbers
        ]
    except (ValueError, AttributeError, TypeError):
        shape = '{"topic":[0,1]}'
        raise OptionError(f"option {name}={text!r}: must be JSON such as {shape}") from None
    if not found:
        raise OptionError(f"option {name}={text!r} names no partition")
    _check_partitions(name, found)
    return tuple(sorted(set(found)))


def _columns(options: _Given) -> Columns:
    with_headers = options.either("includeHeaders", "tidelog.includeHeaders")
    chosen: tuple[str, ...] = options("tidelog.columns") or PLAIN.wanted
    return Columns.of(dict.fromkeys((*chosen, "headers") if with_headers else chosen))


def _fetching(options: _Given) -> Fetching:
    level = options("kafka.isolation.level").upper()
    answer = options("kafka.fetch.max.bytes")
    return Fetching(
        isolation=Isolation[level],
        answer_bytes_max=answer,
        partition_bytes_max=min(options("kafka.max.partition.fetch.bytes"), answer),
        bytes_min=min(options("kafka.fetch.min.bytes"), answer),
        wait_ms=min(options("kafka.fetch.max.wait.ms"), options("kafka.request.timeout.ms") - 1),
        patience_ms=options("kafkaConsumer.pollTimeoutMs"),
        batch_rows=options("tidelog.batchRows"),
    )


def _data_dirs(options: _Given) -> tuple[str, ...]:
    given = (options("tidelog.dataDirs") or "").split(",")
    folders = tuple(one.strip() for one in given if one.strip())
    reads = options("tidelog.read").lower() == "segments"
    if reads != bool(folders):
        raise OptionError("options tidelog.read=segments and tidelog.dataDirs go together")
    return folders


def _limits(options: _Given, mode: Mode) -> Limits:
    limits = Limits(
        options("maxOffsetsPerTrigger"), options("minOffsetsPerTrigger"), options("maxTriggerDelay")
    )
    if mode is Mode.BATCH:
        return Limits(None, None, limits.delay_ms)
    if None not in {limits.offsets_max, limits.offsets_min}:
        least, most = limits.offsets_min, limits.offsets_max
        assert least is not None
        assert most is not None
        if least > most:
            raise OptionError(f"option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger")
    return limits


def _only_of_streams(options: _Given, mode: Mode, name: str) -> str | None:
    found: str | None = options(name)
    if found is not None and mode is Mode.BATCH:
        raise OptionError(f"option {name} is for streams")
    return found


def _id(options: _Given, name: str) -> str | None:
    found: str | None = options(name)
    if found is not None and not _ID.fullmatch(found):
        raise OptionError(f"option {name}={found!r}: must be letters, digits, '.', '_' or '-'")
    return found


def _producing(options: _Given) -> Producing:
    acks = {"0": Acks.NONE, "1": Acks.LEADER}.get(options("kafka.acks"), Acks.ALL)
    batch, buffer = options("kafka.batch.size"), options("kafka.buffer.memory")
    delivery = options("kafka.delivery.timeout.ms")
    if delivery < options("kafka.request.timeout.ms"):
        raise OptionError(
            f"option kafka.delivery.timeout.ms={delivery} is below kafka.request.timeout.ms"
        )
    return Producing(
        acks=acks,
        codec=Codec[options("kafka.compression.type").upper()],
        batch_bytes=min(batch, buffer),
        request_bytes=options("kafka.max.request.size"),
        buffer_bytes=buffer,
        delivery_timeout_ms=delivery,
        transaction_timeout_ms=options("kafka.transaction.timeout.ms"),
    )
