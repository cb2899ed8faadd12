"""What there is to read: which partitions, and where ranges begin and end.

Plans, as everything that asks a cluster: they say what to ask, and are told the answers.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.offsets import END, START, list_offsets
from tidelog.clients.asking import Pause, Plan
from tidelog.clients.cluster_view import ClusterView, refresh
from tidelog.clients.consumer.at_times import first_at_times
from tidelog.clients.retry import BACKOFF
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.spark.java_patterns import java_matcher
from tidelog.spark.loss import Loss, loss_of
from tidelog.spark.offsets import OffsetRange, Positions, ranges_between, split
from tidelog.spark.options import (
    EARLIEST,
    LATEST,
    Assigned,
    Bound,
    Matching,
    Offsets,
    OptionError,
    Sides,
    SourceOptions,
    Subscribed,
    Times,
    Wanted,
)
from tidelog.spark.pushdown import Pushed
from tidelog.wire.errors import ErrorCode

NOTHING_PUSHED = Pushed()
LOOKS_FOR_A_TOPIC = 4
"""A broker may hear of a new topic a moment late."""


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions that are there, and what was named and is not."""

    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...]
    """Topics, and partitions of topics that are there."""


def find_partitions(view: ClusterView, wanted: Wanted, *, patient: bool = True) -> Plan[Found]:
    """Those that there are now; the patient looks for a missing topic again for a while."""
    failures = 0
    while True:
        yield from refresh(view, _topics(wanted))
        found = _found(view, wanted)
        unsettled = [one for one in found.missing if view.errors.get(one) not in _SETTLED]
        failures += 1
        enough = failures >= LOOKS_FOR_A_TOPIC or not patient
        if not found.missing or (not unsettled and enough):
            return found
        code = view.errors.get(found.missing[0])
        because = "is not there" if code is None else code.name
        yield Pause(BACKOFF.wait(failures), f"{found.missing[0]}: {because}")


_SETTLED = frozenset(
    {None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}
)
"""What is said of a topic that is not there; other errors pass."""


def resolve(
    view: ClusterView,
    partitions: Collection[TopicPartition],
    bound: Bound,
    isolation: Isolation,
    *,
    latest_if_too_young: bool,
) -> Plan[Positions]:
    """Where that is in each partition, by number; OptionError where it is nowhere."""
    match bound:
        case Sides():
            return (yield from _ask(view, dict.fromkeys(partitions, bound.value), isolation))
        case Offsets(given):
            check_named(partitions, given)
            sides = {one: where for one, where in given.items() if where < 0}
            return {**given, **(yield from _ask(view, sides, isolation))}
        case Times():
            found, late = yield from _at_times(view, partitions, bound, isolation)
            if late and not latest_if_too_young:
                raise OptionError(
                    f"no record of {name_of(late[0])} is as young as the time it should begin at; "
                    "startingOffsetsByTimestampStrategy=latest begins at the end then"
                )
            return {**found, **(yield from _ask(view, dict.fromkeys(late, END), isolation))}


def _at_times(
    view: ClusterView, partitions: Collection[TopicPartition], times: Times, isolation: Isolation
) -> Plan[tuple[Positions, list[TopicPartition]]]:
    """The first records that a reader sees and that are not older; partitions that have none."""
    given = times.by_partition
    if times.everywhere is not None:
        given = dict.fromkeys(partitions, times.everywhere)
    check_named(partitions, given)
    found = yield from first_at_times(view, given, isolation)
    offsets: Positions = {one: where.offset for one, where in found.items()}
    return offsets, [one for one, offset in offsets.items() if offset < 0]


def ends_now(
    view: ClusterView, partitions: Iterable[TopicPartition], isolation: Isolation
) -> Plan[Positions]:
    """Up to where a reader may see."""
    return (yield from _ask(view, dict.fromkeys(partitions, END), isolation))


def begins_now(view: ClusterView, partitions: Iterable[TopicPartition]) -> Plan[Positions]:
    """The earliest offset that each log has."""
    wanted = dict.fromkeys(partitions, START)
    return (yield from _ask(view, wanted, Isolation.READ_UNCOMMITTED))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch reads, and what of it is not there any more."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...]


def plan_batch(
    view: ClusterView, options: SourceOptions, pushed: Pushed = NOTHING_PUSHED
) -> Plan[BatchPlan]:
    """The ranges of one batch; OptionError where what is wanted is not there."""
    found = yield from find_partitions(view, options.wanted)
    check_all_there(found)
    level = options.fetching.isolation
    start = yield from resolve(
        view,
        found.partitions,
        options.starting,
        level,
        latest_if_too_young=options.latest_if_too_young,
    )
    end = yield from resolve(
        view, found.partitions, options.ending, level, latest_if_too_young=True
    )
    check_order(start, end, options.ending)
    losses: list[Loss] = []
    if isinstance(options.starting, Offsets) or isinstance(options.ending, Offsets):
        losses = yield from _losses(view, start, end)
    start, end = yield from _narrowed(view, pushed, start, end, level)
    ranges = split(
        ranges_between(start, end),
        parts_min=options.partitions_min,
        size_max=options.records_per_partition_max,
    )
    return BatchPlan(tuple(ranges), tuple(losses))


def check_all_there(found: Found) -> None:
    """A topic or partition that is read for the first time must be there."""
    if found.missing:
        raise OptionError(f"{', '.join(found.missing)}: no such topic or partition")


def check_order(start: Positions, end: Positions, ending: Bound) -> None:
    """Refuse a range that the options end before it begins, as the connector does.

    The end of the log is no such end. A start beyond it is told as data loss.
    """
    if isinstance(ending, Sides):
        return
    to_the_end = set[TopicPartition]()
    if isinstance(ending, Offsets):
        to_the_end = {one for one, where in ending.by_partition.items() if where == LATEST}
    for one, first in sorted(start.items()):
        if first > end[one] and one not in to_the_end:
            raise OptionError(
                f"{name_of(one)} would begin at offset {first} and end at offset {end[one]}: "
                "endingOffsets, or the time of the end, must not be before the beginning"
            )


def _narrowed(
    view: ClusterView, pushed: Pushed, start: Positions, end: Positions, level: Isolation
) -> Plan[tuple[Positions, Positions]]:
    """What is left of the ranges under the filters of the query.

    A time needs only a lower bound here, so it may be the marker of a transaction.
    """
    kept = {one: max(where, pushed.first) for one, where in start.items() if pushed.keeps(one)}
    ends = {one: min(end[one], pushed.end) for one in kept}
    if pushed.not_before_ms is not None:
        times = dict.fromkeys(kept, pushed.not_before_ms)
        found = yield from _ask(view, times, level)
        for one, where in found.items():
            kept[one] = max(kept[one], where if where >= 0 else ends[one])
    return kept, ends


def _losses(view: ClusterView, start: Positions, end: Positions) -> Plan[list[Loss]]:
    """What is not committed yet is no loss: the log goes beyond it."""
    earliest = yield from begins_now(view, start)
    latest = yield from ends_now(view, start, Isolation.READ_UNCOMMITTED)
    judged = [
        loss_of(one, where, earliest[one], latest[one])
        for one in start
        for where in dict.fromkeys((start[one], max(start[one], end[one])))
    ]
    return [one for one in judged if one is not None]


def _topics(wanted: Wanted) -> Collection[str] | None:
    match wanted:
        case Assigned(partitions):
            return {topic for topic, _ in partitions}
        case Subscribed(topics):
            return topics
        case Matching():
            return None


def _found(view: ClusterView, wanted: Wanted) -> Found:
    there = {
        (name, Partition(number))
        for name, topic in view.topics.items()
        for number in topic.partitions
    }
    return found_among(there, {name for name, one in view.topics.items() if one.internal}, wanted)


def found_among(
    there: Collection[TopicPartition], internal: Collection[str], wanted: Wanted
) -> Found:
    """What is wanted of the partitions that there are."""
    match wanted:
        case Assigned(partitions):
            return Found(
                tuple(one for one in partitions if one in there), _missing(there, partitions)
            )
        case Subscribed(topics):
            missing = set(topics) - {topic for topic, _ in there}
            return Found(_all_of(there, topics), tuple(sorted(missing)))
        case Matching(pattern):
            fits = java_matcher(pattern)
            topics = tuple({topic for topic, _ in there if topic not in internal and fits(topic)})
            return Found(_all_of(there, topics), ())


def _missing(
    there: Collection[TopicPartition], partitions: Iterable[TopicPartition]
) -> tuple[str, ...]:
    """The names of topics that are not there, and of partitions that their topics do not have."""
    topics = {topic for topic, _ in there}
    missing = [one for one in partitions if one not in there]
    return tuple(sorted({name_of(one) if one[0] in topics else one[0] for one in missing}))


def _all_of(there: Iterable[TopicPartition], topics: Collection[str]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(one for one in there if one[0] in topics))


def _ask(
    view: ClusterView, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> Plan[Positions]:
    if not wanted:
        return {}
    found = yield from list_offsets(view, wanted, isolation)
    return {one: offset.offset for one, offset in found.items()}


def check_named(
    partitions: Collection[TopicPartition], given: Mapping[TopicPartition, int]
) -> None:
    """As the connector: what begins or ends by partition names each of them."""
    missing = sorted(set(partitions) - set(given))
    if missing:
        raise OptionError(
            "offsets by partition must name every partition that is read: "
            f"{name_of(missing[0])} is missing; {EARLIEST} is its earliest offset, -1 its latest"
        )
    odd = sorted(set(given) - set(partitions))
    if odd:
        raise OptionError(f"offsets are given for {name_of(odd[0])}, which is not read")
