"""What a batch reads of a cluster that is not asked, for it may be stopped: of its files alone."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidelog.kernel.ids import TopicPartition
from tidelog.spark.noted_topics import noted_partitions
from tidelog.spark.offsets import OffsetRange, Positions, ranges_between, split
from tidelog.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    Offsets,
    OptionError,
    Sides,
    SourceOptions,
    Times,
)
from tidelog.spark.planning import check_all_there, check_named, check_order, found_among
from tidelog.spark.pushdown import Pushed
from tidelog.spark.replicas import log_directories_in, partitions_in
from tidelog.spark.segments import SegmentReader, Span, bounds

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


def plan_of_files(options: SourceOptions, pushed: Pushed) -> list[OffsetRange]:
    """The ranges of one batch, as far as brokers have noted what is committed."""
    places = _places(options)
    there = partitions_in(places)
    empty = noted_partitions(places, log_directories_in(places)) - there
    found = found_among(there | empty, _INTERNAL, options.wanted)
    check_all_there(found)
    level = options.fetching.isolation
    known = {
        one: (0, 0) if one in empty else bounds(places, one, level) for one in found.partitions
    }
    earliest = {one: start for one, (start, _) in known.items()}
    latest = {one: end for one, (_, end) in known.items()}
    start = _resolve(options.starting, found.partitions, earliest, latest)
    end = _resolve(options.ending, found.partitions, earliest, latest)
    check_order(start, end, options.ending)
    for one in found.partitions:
        if start[one] < earliest[one] or end[one] > latest[one]:
            raise OptionError(
                f"{one[0]}-{one[1]}: its files hold offsets {earliest[one]} to {latest[one]}"
            )
    kept = {one: max(where, pushed.first) for one, where in start.items() if pushed.keeps(one)}
    ends = {one: min(end[one], pushed.end) for one in kept}
    return split(
        ranges_between(kept, ends),
        parts_min=options.partitions_min,
        size_max=options.records_per_partition_max,
    )


def read_files(wanted: OffsetRange, options: SourceOptions) -> Iterator[Any]:
    """The rows of a range; DoubtError where the files are not beyond doubt, for nobody is asked."""
    span = Span(wanted.place, wanted.start, wanted.end, options.fetching.isolation)
    rows = options.fetching.batch_rows
    return SegmentReader(_places(options), span, options.columns, rows_per_batch=rows).batches()


def _places(options: SourceOptions) -> Sequence[Path]:
    return [Path(one) for one in options.data_dirs]


def _resolve(
    bound: Bound, partitions: Collection[TopicPartition], earliest: Positions, latest: Positions
) -> Positions:
    match bound:
        case Times():
            raise OptionError("offsets are not looked up by time in files: start the cluster")
        case Offsets(given):
            check_named(partitions, given)
        case Sides():
            given = dict.fromkeys(partitions, bound.value)
    sides = {EARLIEST: earliest, LATEST: latest}
    return {one: sides[where][one] if where < 0 else where for one, where in given.items()}
