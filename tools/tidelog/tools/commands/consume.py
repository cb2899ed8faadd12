"""`tidelog consume`: records of topics, from an offset on, printed as asked."""

import itertools
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.clients.admin.coordinators import KeyType, ask_coordinator
from tidelog.clients.client import Client
from tidelog.clients.consumer.consumer import Consumer
from tidelog.clients.consumer.offsets import Place, Range, parse_range, plan_offsets
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.settings import ConsumerSettings, Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant, WallMs, s
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import MISSING, check_partition, connected, known_topics
from tidelog.tools.output import (
    NOT_FOUND,
    UNREACHABLE,
    Command,
    Target,
    bootstrap_options,
    fail,
    json_option,
    note,
)
from tidelog.tools.record_format import (
    FORMAT_HELP,
    Formatter,
    as_line,
    as_safe_line,
    compile_format,
    json_lines,
)
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.wire.records import Record

POLL_NS = s(1)


@dataclass(frozen=True, slots=True)
class _Job:
    form: Formatter
    records_max: int | None
    quiet_ns: int | None
    """End when no record came for so long."""


@click.command(
    cls=Command,
    examples=(
        "tidelog consume orders -o start -n 5",
        "tidelog consume orders -o @-1h:@now -f '%T %k %s\\n'",
        "tidelog consume orders -o end --json",
    ),
)
@click.argument("topics", metavar="TOPIC…", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-o",
    "--offset",
    default="start",
    show_default=True,
    help="start, end, 123, -10 (from the end), @ISO (UTC), @-1h, or a range as @-30m:@now.",
)
@click.option("-g", "--group", metavar="G", help="Read as a member of a group (not yet).")
@click.option(
    "--partition",
    "numbers",
    metavar="P",
    type=click.IntRange(0),
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.option(
    "-n", "--max", "records_max", metavar="N", type=click.IntRange(1), help="End after N records."
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(0, min_open=True),
    help="End when no record came for so many seconds.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Which records of transactions to show.  [default: read_uncommitted]",
)
@click.option("-f", "--format", "form", metavar="FORMAT", help=FORMAT_HELP)
@bootstrap_options
@json_option
def consume(  # noqa: PLR0913 -- the options of the command
    target: Target,
    *,
    topics: Sequence[str],
    offset: str,
    group: str | None,
    numbers: Sequence[int],
    records_max: int | None,
    timeout: float | None,
    isolation: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Read records; goes on until Ctrl-C, or an end that the options give."""
    span = _range(offset)
    quiet_ns = None if timeout is None else int(timeout * s(1))
    job = _Job(_formatter(form, as_json=as_json), records_max, quiet_ns)
    level = Isolation[(isolation or "read_uncommitted").upper()]
    with connected(target) as client:
        if group is not None:
            _refuse_group(client, group)
        partitions = _partitions(client, topics, numbers)
        places = client.run(plan_offsets(client.view, partitions, span, level))
        _read(client, ConsumerSettings(isolation=level), places, job)


def _range(text: str) -> Range:
    try:
        return parse_range(text, WallMs(time.time_ns() // 1_000_000))
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None


def _formatter(text: str | None, *, as_json: bool) -> Formatter:
    if as_json and text is not None:
        raise click.UsageError("--json has a format of its own: leave out --format")
    if as_json:
        return json_lines()
    if text is None:
        return as_safe_line if sys.stdout.isatty() else as_line
    try:
        return compile_format(text)
    except ValueError as error:
        raise click.UsageError(f"--format: {error}") from None


def _refuse_group(client: Client, group: str) -> None:
    """This command is no member of a group yet: say what the cluster says of this one."""
    answer = client.run(ask_coordinator(group, KeyType.GROUP))
    said = f"broker {answer.broker} coordinates it"
    if answer.code is not ErrorCode.NONE:
        said = f"{answer.code.name} {answer.detail}".strip()
    fail(
        f"tidelog consume does not read as a member of a group (the cluster says of {group!r}: "
        f"{said}): leave out --group and give --offset, or read with any Kafka client"
    )


def _partitions(
    client: Client, topics: Sequence[str], numbers: Sequence[int]
) -> list[TopicPartition]:
    chosen: list[TopicPartition] = []
    for view in known_topics(client, topics):
        for number in numbers:
            check_partition(view, number)
        wanted = sorted(set(numbers)) if numbers else list(view.partitions)
        chosen += [(view.name, Partition(number)) for number in wanted]
    return chosen


def _read(
    client: Client, settings: ConsumerSettings, places: Mapping[TopicPartition, Place], job: _Job
) -> None:
    reader = _Reader(client, settings, places, job)
    try:
        while reader.goes_on:
            reader.step()
            _check_topics(client, places)
    except BrokenPipeError:
        # As in `consume t | head`: done, and nothing may be flushed at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Reader:
    """Prints what comes until the job is done."""

    def __init__(
        self,
        client: Client,
        settings: ConsumerSettings,
        places: Mapping[TopicPartition, Place],
        job: _Job,
    ) -> None:
        chosen = {
            one: place
            for one, place in places.items()
            if place.stop is None or place.first < place.stop
        }
        self._job = job
        self._network = client.network
        self._consumer = Consumer(client, settings)
        self._consumer.assign({one: place.first for one, place in chosen.items()})
        self._stops = {one: place.stop for one, place in chosen.items()}
        self._printed = 0
        self._last = client.network.now()
        self._out = sys.stdout.buffer
        self.goes_on = bool(chosen)

    def step(self) -> None:
        """Print what one answer brings, or wait for it a while."""
        until = Instant(self._network.now() + POLL_NS)
        quiet_ns = self._job.quiet_ns
        if quiet_ns is not None:
            until = min(until, Instant(self._last + quiet_ns))
        fetched = self._consumer.poll(until)
        if fetched is not None:
            self._print(fetched)
        self._tell_resets()
        if self._printed == self._job.records_max or not self._stops:
            self.goes_on = False
        elif quiet_ns is not None and self._network.now() >= self._last + quiet_ns:
            self._end_quietly()

    def _print(self, fetched: Fetched) -> None:
        partition, form = fetched.partition, self._job.form
        stop = self._stops[partition]
        records: Iterable[Record] = fetched.records()
        if stop is not None:
            records = itertools.takewhile(lambda record: record.offset < stop, records)
        if self._job.records_max is not None:
            records = itertools.islice(records, self._job.records_max - self._printed)
        lines = [form(partition, record) for record in records]
        if lines:
            self._out.write(b"".join(lines))
            self._out.flush()
            self._printed += len(lines)
            self._last = self._network.now()
        self._consumer.consumed(fetched)
        if stop is not None and fetched.position >= stop:
            self._consumer.drop(partition)
            del self._stops[partition]

    def _tell_resets(self) -> None:
        for reset in self._consumer.resets:
            topic, number = reset.partition
            note(f"{topic}-{number} has no offset {reset.asked}: going on at {reset.found}")
        self._consumer.resets.clear()

    def _end_quietly(self) -> None:
        """Nothing came for so long: the end, unless more was asked for."""
        self.goes_on = False
        wanted = self._job.records_max
        if wanted is not None and self._printed < wanted:
            came = f"only {self._printed} of {wanted} records came in time"
            fail(f"{came}: wait longer with --timeout", UNREACHABLE)


def _check_topics(client: Client, places: Mapping[TopicPartition, Place]) -> None:
    """A topic that was there at the start may be deleted while it is read."""
    for topic in {topic for topic, _ in places}:
        if client.view.errors.get(topic) in MISSING:
            fail(f"topic {topic!r} was deleted while it was read", NOT_FOUND)
