"""Which settings contradict each other, or lose data. Rules over values; asks nobody anything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

NEVER: Final = -1
SOON_MS: Final = 60_000
_IDLE: Final = ("no effect", "nothing acts on it")
_PLACED: Final = frozenset(
    {"advertised.listeners", "broker.id", "listeners", "log.dirs", "node.id", "process.roles"}
)
"""What a start gives every broker."""
_SETTINGS_OF_POLICIES: Final[Mapping[str, frozenset[str]]] = {
    "compact": frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms", "delete.retention.ms"}),
    "delete": frozenset({"retention.ms", "retention.bytes"}),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A topic, a broker or a group, and what the rules need to know of it."""

    name: str
    values: Mapping[str, str]
    chosen: frozenset[str]
    """Settings that somebody set: a default is nobody's mistake."""
    documentation: Mapping[str, str]
    replicas: int = 1
    """How many each partition has, at the least."""
    brokers: int = 1
    """How many the cluster has."""

    def number(self, name: str, default: int) -> int:
        text = self.values.get(name)
        return default if text is None else int(text)

    def is_true(self, name: str) -> bool:
        return self.values.get(name) == "true"

    @property
    def policy(self) -> frozenset[str]:
        return frozenset(self.values.get("cleanup.policy", "delete").split(","))


class Finding(NamedTuple):
    """One thing to look at."""

    subject: str
    setting: str
    reason: str


Rule = Callable[[Subject], Iterator[tuple[str, str]]]


def check_topic(subject: Subject) -> list[Finding]:
    return _check(subject, _TOPIC_RULES)


def check_broker(subject: Subject) -> list[Finding]:
    return _check(subject, _BROKER_RULES)


def check_group(subject: Subject) -> list[Finding]:
    return _check(subject, _GROUP_RULES)


def _check(subject: Subject, rules: Sequence[Rule]) -> list[Finding]:
    return [Finding(subject.name, *found) for rule in rules for found in rule(subject)]


# -- topics -------------------------------------------------------------------------------------


def _replication(one: Subject) -> Iterator[tuple[str, str]]:
    needed = one.number("min.insync.replicas", 1)
    setting = "min.insync.replicas"
    if needed > one.replicas:
        there = "there is 1 replica" if one.replicas == 1 else f"there are {one.replicas} replicas"
        yield setting, f"{needed}, but {there}: no more are waited for"
    elif needed == one.replicas > 1:
        yield setting, f"all {needed} replicas: acks=all stops when one broker does"
    elif needed == 1 and one.replicas > 1:
        yield (
            setting,
            f"1 of {one.replicas} replicas: what acks=all confirmed may be on one broker only",
        )
    if one.replicas == 1 < one.brokers:
        yield (
            "replication.factor",
            f"1, though there are {one.brokers} brokers: a lost broker loses its records",
        )


def _elections(one: Subject) -> Iterator[tuple[str, str]]:
    setting = "unclean.leader.election.enable"
    if one.is_true(setting):
        yield setting, "true: a replica that is behind may lead, and what it lacks is lost"


def _retention(one: Subject) -> Iterator[tuple[str, str]]:
    if "delete" not in one.policy:
        return
    age, size = one.number("retention.ms", NEVER), one.number("retention.bytes", NEVER)
    if age == NEVER and size == NEVER:
        yield (
            "retention.ms",
            "-1, as retention.bytes: the topic grows until the disk is full",
        )
    if 0 <= age < SOON_MS:
        yield "retention.ms", f"{age}: records may go before anyone has read them"
    segment = one.number("segment.bytes", 0)
    if 0 <= size < segment:
        yield (
            "retention.bytes",
            f"{size} is less than segment.bytes={segment}: no segment goes before it is full",
        )


def _idle_policy(one: Subject) -> Iterator[tuple[str, str]]:
    for policy, names in _SETTINGS_OF_POLICIES.items():
        if policy not in one.policy:
            for name in sorted(one.chosen & names):
                yield name, f"set, but cleanup.policy has no {policy}"


def _tombstones(one: Subject) -> Iterator[tuple[str, str]]:
    if "compact" not in one.policy:
        return
    kept = one.number("delete.retention.ms", 0)
    if kept < SOON_MS and "delete.retention.ms" in one.chosen:
        yield (
            "delete.retention.ms",
            f"{kept}: a consumer that takes longer misses that a key was deleted",
        )


def _sizes(one: Subject) -> Iterator[tuple[str, str]]:
    largest, segment = one.number("max.message.bytes", 0), one.number("segment.bytes", 0)
    if 0 < segment < largest:
        yield (
            "max.message.bytes",
            f"{largest} is more than segment.bytes={segment}: batches in between are refused",
        )


def _stamps(one: Subject) -> Iterator[tuple[str, str]]:
    if one.values.get("message.timestamp.type") != "LogAppendTime":
        return
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if name in one.chosen:
            yield name, "set, but message.timestamp.type=LogAppendTime: the broker's clock stamps"


def _without_effect(one: Subject) -> Iterator[tuple[str, str]]:
    for name in sorted(one.chosen - _PLACED):
        if any(words in one.documentation.get(name, "") for words in _IDLE):
            yield name, "set, but it has no effect here"


# -- brokers ------------------------------------------------------------------------------------


def _units(one: Subject) -> Iterator[tuple[str, str]]:
    for stem, units in (
        ("log.retention", ("ms", "minutes", "hours")),
        ("log.roll", ("ms", "hours")),
        ("log.roll.jitter", ("ms", "hours")),
    ):
        given = [name for unit in units if (name := f"{stem}.{unit}") in one.chosen]
        for weaker in given[1:]:
            yield weaker, f"set, but {given[0]} counts"


def _new_topics(one: Subject) -> Iterator[tuple[str, str]]:
    factor = one.number("default.replication.factor", 1)
    if one.is_true("auto.create.topics.enable") and factor == 1 < one.brokers:
        yield (
            "default.replication.factor",
            "1: topics that clients make by asking for them lie on one broker",
        )


_TOPIC_RULES: Final[Sequence[Rule]] = (
    _replication,
    _elections,
    _retention,
    _idle_policy,
    _tombstones,
    _sizes,
    _stamps,
    _without_effect,
)
_BROKER_RULES: Final[Sequence[Rule]] = (_units, _new_topics, _elections, _without_effect)
_GROUP_RULES: Final[Sequence[Rule]] = (_without_effect,)
