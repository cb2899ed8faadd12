"""Messages of every API with values that mean something, and values that nobody expects.

They are made from the schema's own rows, so a new API or version is fuzzed without a change here.
Draws depend on the seed alone, never on what a broker answered: the same seed asks the same things.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from harness.faults.fuzz_batches import Batches
from tidelog.kernel.limits import STRING_BYTES_MAX
from tidelog.wire import primitives
from tidelog.wire.primitives import Primitive
from tidelog.wire.schema import Array, Row, WireType, rows_of

_T = TypeVar("_T")

_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64}
_UNSIGNED_BITS: Final = {"H": 16, "I": 32}
LONG_TEXTS: Final = (
    "n" * STRING_BYTES_MAX,
    "n" * (STRING_BYTES_MAX - 1),
    "n" * (STRING_BYTES_MAX - 36),
    "€" * (STRING_BYTES_MAX // 3),
    "n" * 20_000,
    "9" * 5_000,
    "(" * 9_000,
    "a," * 16_000,
)
TEXTS: Final = (
    "",
    ".",
    "..",
    "a/b",
    "a\0b",
    "ключ",
    "\u202e\U0001f30a",
    "x" * 249,
    "x" * 250,
    "-1",
    "0",
    "99999999999999999999",
    "NaN",
    "%s%n{0}",
    "*",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "org.apache.kafka.clients.consumer.RangeAssignor",
)
CONFIGS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "compression.type",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "flush.policy",
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "interval.ms",
    "match",
    "consumer.heartbeat.interval.ms",
)
CONFIG_VALUES: Final = (
    "delete",
    "compact",
    "compact,delete",
    "zstd",
    "gzip",
    "producer",
    "uncompressed",
    "1",
    "0",
    "-1",
    "100",
    "4096",
    "1048576",
    "9223372036854775807",
    "-9223372036854775808",
    "1e309",
    "true",
    "LogAppendTime",
    "CreateTime",
    "commit",
    "*",
    "0:0,1:1",
)
_BROKER: Final = 4

NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    "acks": (-1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 0, 2),
    "replica_id": (-1, -1, -1, -2, 0, 1),
    "session_epoch": (-1, -1, 0, 0, 1, 2, 7),
    "current_leader_epoch": (-1, -1, -1, 0, 1, 9),
    "last_fetched_epoch": (-1, -1, 0, 5),
    "leader_epoch": (-1, 0, 1, 3),
    "fetch_offset": (0, 0, 1, 3, 17, -1, 10**6),
    "max_wait_ms": (0, 0, 0, 1, 2, 5),
    "max_wait_time": (0, 1),
    "min_bytes": (0, 0, 1, 1_000),
    "max_bytes": (0, 1, 1_000, 2**20, 2**31 - 1),
    "partition_max_bytes": (0, 1, 1_000, 2**20, 2**31 - 1),
    "timeout_ms": (0, 1, 100, -1),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_500, 2**62, -(2**62)),
    "num_partitions": (-1, 1, 1, 2, 0, -5, 10_001, 2**31 - 1),
    "count": (0, 1, 2, 3, 4, -1, 10_001, 2**31 - 1),
    "replication_factor": (-1, 1, 2, 3, 4, 0, 32_767),
    "broker_id": (-1, -2, 7, 99, 2**31 - 1, -(2**31)),
    "broker_ids": (0, 1, 2, 2, 9, -1, 2**31 - 1),
    "replicas": (0, 1, 2, 2, 9, -1, 2**31 - 1),
    "resource_type": (2, 2, 2, 2, 2, 32, 16, 8, _BROKER, 0, 1, 64, -128, 127),
    "config_operation": (0, 0, 1, 2, 3, 4, -1, 127),
    "key_type": (0, 0, 1, 1, 2, -1),
    "session_timeout_ms": (*(6_000, 10_000, 30_000) * 5, 1_000, 2**31 - 1),
    "rebalance_timeout_ms": (1, 50, 100, -1, 1_000),
    "transaction_timeout_ms": (1, 50, 1_000, 60_000, 0, -1, 2**31 - 1),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, 0, 1, 2),
    "member_epoch": (0, 0, 0, 0, 1, 2, 3, -1, -2, -3),
    "committed_offset": (0, 1, 5, 100, -1, -5, 2**63 - 1),
    "committed_leader_epoch": (-1, -1, 0, 5),
    "offset": (0, 1, 2, 5, -1, -5, 2**63 - 1),
    "producer_epoch": (0, 0, 1, 2, -1, 32_767),
    "coordinator_epoch": (0, 1, -1, 2**31 - 1),
    "election_type": (0, 0, 1, 2, -1),
    "upgrade_type": (0, 1, 2, 3, 4, -1),
    "max_version_level": (-1, 0, 1, 2, 3, 99, 32_767),
    "response_partition_limit": (1, 2, 2_000, -1, 0),
    "isolation_level": (0, 1, 1, 2, -1),
}
_PARTITIONS: Final = frozenset(
    {"partition", "index", "partition_index", "partitions", "partition_indexes", "partition_id"}
)
_TOPICS: Final = frozenset({"name", "topic", "topic_name", "topic_names", "topics", "names"})
_GROUPS: Final = frozenset({"group_id", "group_ids", "groups", "groups_names", "group"})
_COME_AND_GO: Final = ("fz-new0", "fz-new1", "fz-new2", "fz.new2")
_NULL: Final = {"transactional_id": 0.6, "instance_id": 0.7, "group_instance_id": 0.8}
"""How often a field is null; others more seldom."""
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "group_instance_id": ("i0", "i1"),
    "instance_id": ("i0", "i1"),
    "protocol_type": ("consumer",),
    "server_assignor": ("uniform", "range", "other"),
    "subscribed_topic_regex": (
        "fz-.*",
        "fz-[a-z]+",
        "(((a)*)*)*b",
        "fz-(0|1){1,30}",
        "[",
        "a{999}",
    ),
    "feature": ("metadata.version", "transaction.version", "group.version", "other"),
}
_FLOATS: Final = (0.0, -1.0, 1e308, float("inf"), float("nan"))
_GENERATIONS: Final = ("generation_id", "generation_id_or_member_epoch", "member_epoch")
_LISTS: Final = (0, 1, 1, 1, 2, 2, 3)


@dataclass(frozen=True, slots=True)
class Aims:
    """What of a cluster is meant."""

    topics: tuple[tuple[str, bytes], ...]
    """Names and ids."""
    led: tuple[tuple[tuple[str, bytes, int], ...], ...]
    """The partitions that each broker leads, with their topics' names and ids."""
    groups: tuple[tuple[str, ...], ...]
    """Those that each broker coordinates."""
    transactions: tuple[tuple[str, ...], ...]
    """The transactional ids of each broker."""


@dataclass(slots=True)
class Learned:
    """What answers said, the latest few of each kind."""

    producers: list[tuple[int, int]] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    of_transaction: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The producer of each transactional id, and its epoch."""
    of_group: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The latest member of each group, and its generation."""
    created: list[bytes] = field(default_factory=list)
    """Ids of topics that may be deleted."""

    @staticmethod
    def note(known: list[_T], one: _T) -> None:
        known.append(one)
        del known[:-8]


class Values:
    """Makes whole messages; hostile parts are the exception, or nothing gets deep."""

    def __init__(self, aims: Aims, random: Random, learned: Learned) -> None:
        self._aims = aims
        self._random = random
        self._learned = learned
        self._batches = Batches(random)
        self.broker = 0
        """Whom the next messages go to."""

    def message(self, cls: type[Any], version: int) -> Any:
        made = cls()
        for row in rows_of(cls):
            if version in row.versions:
                setattr(made, row.name, self._value(cls, row, version))
        self._spare_brokers(made)
        self._lead_there(made)
        if self._random.random() < (0.25 if cls.__name__.startswith("Join") else 0.6):
            self._match(made)
        return made

    def _lead_there(self, made: Any) -> None:
        """Most of what is asked of a leader's partitions goes to their leader."""
        drawn, place = self._random.random(), self._random.random()
        rows = getattr(made, "partition_data", None) or getattr(made, "partitions", None)
        led = self._aims.led[self.broker]
        if not rows or not led or drawn > 0.75 or not hasattr(rows[0], "__slots__"):
            return
        name, topic_id, partition = _pick(led, place)
        _set(made, ("name", "topic"), name)
        _set(made, ("topic_id",), topic_id)
        for row in rows:
            _set(row, ("index", "partition", "partition_index"), partition)

    def _match(self, made: Any) -> None:
        """Have what names somebody, and the numbers it was given, belong together."""
        for prefix in ("", "v3_and_below_"):
            name = getattr(made, f"{prefix}transactional_id", None)
            producer = self._learned.of_transaction.get(name or "")
            if producer is not None:
                _set(made, (f"{prefix}producer_id",), producer[0])
                _set(made, (f"{prefix}producer_epoch",), producer[1])
        member = self._learned.of_group.get(getattr(made, "group_id", None) or "")
        if member is not None:
            _set(made, ("member_id",), member[0])
            _set(made, _GENERATIONS, member[1])

    def client_id(self) -> str | None:
        drawn = self._random.random()
        if drawn < 0.88:
            return "fuzz"
        if drawn < 0.94:
            return self._random.choice(LONG_TEXTS)
        return None if drawn < 0.96 else self._random.choice(TEXTS)

    def _spare_brokers(self, made: Any) -> None:
        """Right settings of all brokers are a right request, which would disturb everybody."""
        if getattr(made, "resource_type", 0) == _BROKER:
            for one in getattr(made, "configs", None) or ():
                one.name = self._hostile_text()

    def _value(self, cls: type[Any], row: Row, version: int) -> Any:
        random = self._random
        tagged = row.is_tagged(version)
        if tagged and random.random() < 0.5:
            return row.default if not row.makes_default else []
        if row.is_nullable(version) and random.random() < _NULL.get(row.name, 0.12):
            return None
        if row.name == "topic_partitions" and random.random() < 0.7:
            return []  # of a member that joins
        return self._of_type(cls, row.type, row.name, version)

    def _of_type(self, cls: type[Any], kind: WireType, name: str, version: int) -> Any:
        if isinstance(kind, Array):
            return self._list(cls, kind, name, version)
        if isinstance(kind, Primitive):
            return self._primitive(cls, kind, name)
        return self.message(kind, version)

    def _list(self, cls: type[Any], kind: Array, name: str, version: int) -> list[Any]:
        random = self._random
        count = random.choice(_LISTS)
        if random.random() < 0.01 and isinstance(kind.element, Primitive):
            count = 200
        made = [self._of_type(cls, kind.element, name, version) for _ in range(count)]
        if made and random.random() < 0.1:
            made.append(made[0])  # the same one twice
        return made

    def _primitive(self, cls: type[Any], kind: Primitive, name: str) -> Any:
        random = self._random
        if kind is primitives.STRING:
            return self._text(cls.__name__, name)
        if kind is primitives.RECORDS:
            return self._batches.draw(self._learned.producers)
        if kind is primitives.BYTES:
            return self._bytes(name)
        if kind is primitives.UUID:
            return self._uuid(cls.__name__)
        if kind in {primitives.BOOL, primitives.FLOAT64}:
            return random.random() < 0.3 if kind is primitives.BOOL else random.choice(_FLOATS)
        return self._number(kind, name)

    def _uuid(self, owner: str) -> bytes:
        random = self._random
        drawn, place, known = random.random(), random.random(), random.choice(self._aims.topics)[1]
        if "Delete" in owner:
            known = _at(self._learned.created, place) or bytes(16)
        if drawn < 0.85:
            return known
        return bytes(16) if drawn < 0.95 else random.randbytes(16)

    def _number(self, kind: Primitive, name: str) -> int:
        random = self._random
        unsigned = _UNSIGNED_BITS.get(kind.code)
        bits = unsigned or _BITS[kind.code]
        low: int = 0 if unsigned else -(2 ** (bits - 1))
        high: int = low + 2**bits - 1
        drawn, place = random.random(), random.random()
        number = self._drawn_number(name, drawn, bits)  # in any case: the draws must be the same
        known = self._known_number(name, place)
        if known is not None and drawn < 0.6:
            number = known
        return max(low, min(number, high))

    def _drawn_number(self, name: str, drawn: float, bits: int) -> int:
        random = self._random
        high: int = 2 ** (bits - 1) - 1
        if name in NUMBERS:
            # What waits for long, or makes a great deal, is no fault and would only take time.
            return random.choice(NUMBERS[name])
        if name in _PARTITIONS:
            return random.choice((0, 0, 0, 1, 1, 2) if drawn < 0.93 else (-1, 9, high))
        if drawn < 0.7:
            return random.choice((0, 1, 2, -1, 3, 100))
        extremes: tuple[int, ...] = (
            -high - 1,
            high,
            -high,
            high - 1,
            2 * high + 1,
            random.getrandbits(bits - 1),
        )
        return random.choice(extremes)

    def _known_number(self, name: str, place: float) -> int | None:
        """What a broker gave to somebody."""
        learned = self._learned
        if name == "session_id":
            return _at(learned.sessions, place)
        if name in {"producer_id", "producer_epoch"}:
            known = _at(learned.producers, place)
            return None if known is None else known[name == "producer_epoch"]
        return None

    def _hostile_text(self) -> str:
        random = self._random
        return random.choice(LONG_TEXTS if random.random() < 0.35 else TEXTS)

    def _text(self, owner: str, name: str) -> str:
        drawn, place = self._random.random(), self._random.random()
        hostile = self._hostile_text()
        if owner.startswith(("Reassignable", "DeleteTopic")) and hostile.startswith("__"):
            hostile = ".."  # groups that move all the time get nowhere
        if drawn < 0.08:
            return hostile
        if name in {"value", "name"} and "Config" in owner:
            return _pick(CONFIGS if name == "name" else CONFIG_VALUES, place)
        return self._name(owner, name, drawn, place) or self._other_text(
            owner, name, place, hostile
        )

    def _name(self, owner: str, name: str, drawn: float, place: float) -> str:
        """Of something that there is, or may be; empty where it is not what is named."""
        aims, is_key = self._aims, name in {"key", "coordinator_keys"}
        if name in _GROUPS or (is_key and drawn < 0.5):
            return _pick(aims.groups[self.broker], place)
        if "transactional_id" in name or is_key:
            return _pick(aims.transactions[self.broker], place)
        if owner == "JoinGroupRequestProtocol":
            return _pick(("range", "range", "roundrobin"), place)
        if owner in {"CreatableTopic", "DeleteTopicState", "DeleteTopicsRequest"}:
            return _pick(_COME_AND_GO, place)
        if name in _TOPICS or (name == "resource_name" and drawn < 0.7):
            # Leaders of all but the last one stay where they are, mostly.
            moves = owner.startswith("Reassignable") and drawn < 0.9
            return _pick(aims.topics[-1:] if moves else aims.topics, place)[0]
        return ""

    def _other_text(self, owner: str, name: str, place: float, hostile: str) -> str:
        if name == "member_id":
            if owner == "JoinGroupRequest" and place < 0.7:
                return ""
            if place < 0.4:  # half of them are new
                return "" if place < 0.2 else _pick(("m0", "m1", "m2"), 5 * place - 1)
            return _at(self._learned.members, place) or "m0"
        if name in _WORDS:
            return _pick(_WORDS[name], place)
        return "range" if place < 0.5 else hostile

    def _bytes(self, name: str) -> bytes:
        """What members say of themselves, now and then in the consumers' own format."""
        random = self._random
        drawn = random.random()
        topic = self._aims.topics[0][0].encode()
        if name in {"metadata", "assignment"} and drawn < 0.6:
            said = b"\x00\x01\x00\x00\x00\x01" + len(topic).to_bytes(2, "big") + topic
            return said + b"\xff\xff\xff\xff\x00\x00\x00\x00"
        if drawn < 0.62:
            return random.randbytes(40_000)
        return random.randbytes(random.choice((0, 1, 6, 17, 127, 400)))


def _set(made: Any, names: Sequence[str], value: object) -> None:
    """Those that the message has."""
    for name in names:
        if hasattr(made, name):
            setattr(made, name, value)


def _pick(values: Sequence[_T], place: float) -> _T:
    return values[int(place * len(values))]


def _at(values: Sequence[_T], place: float) -> _T | None:
    """As `_pick`, where there may be none: the draw is the same."""
    return _pick(values, place) if values else None
