"""`tidelog topic offsets`: where each partition begins and ends, or is at a moment."""

import time
from collections.abc import Mapping, Sequence

import click

from tidelog.clients.admin.offsets import END, MAX_TIMESTAMP, START, FoundOffset, list_offsets
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import TopicView
from tidelog.clients.consumer.offsets import Anchor, parse_range
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    emit_json,
    json_option,
    moment,
    table,
)

VERSION = 1
WORDS: Mapping[str, int] = {
    "earliest": START,
    "start": START,
    "latest": END,
    "end": END,
    "max-timestamp": MAX_TIMESTAMP,
}

Offsets = Mapping[TopicPartition, FoundOffset]


@click.command(
    "offsets",
    cls=Command,
    examples=(
        "tidelog topic offsets orders",
        "tidelog topic offsets orders --time 2026-01-31T12:00",
        "tidelog topic offsets orders --time @-1h --json",
    ),
)
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "--time",
    "at",
    metavar="TIME",
    help="earliest, latest, max-timestamp, or the first record at or after ISO (UTC), @ISO, @-1h.",
)
@bootstrap_options
@json_option
def offsets(target: Target, names: Sequence[str], at: str | None, *, as_json: bool) -> None:
    """Show the first and the next offset of each partition, or the offsets at a time."""
    asked = None if at is None else _timestamp(at)
    with connected(target) as client:
        topics = known_topics(client, names)
        if asked is None:
            found = [_find(client, topics, START), _find(client, topics, END)]
        else:
            found = [_find(client, topics, asked)]
    if as_json:
        shown = [_document(one, found) for one in topics]
        emit_json({"version": VERSION, "time": at, "topics": shown})
    elif asked is None:
        rows = [
            (topic, number, start, end, end - start)
            for topic, number, start, end in _spans(topics, found[0], found[1])
        ]
        table(rows, ("TOPIC", "PARTITION", "START", "END", "RECORDS AT MOST"))
    else:
        table(_rows(topics, found[0]), ("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "EPOCH"))


def _timestamp(text: str) -> int:
    """What ListOffsets is asked for."""
    if text in WORDS:
        return WORDS[text]
    now = WallMs(time.time_ns() // 1_000_000)
    try:
        span = parse_range(text if text.startswith("@") else f"@{text}", now)
    except ValueError:
        span = None
    if span is None or span.stop is not None or span.first.anchor is not Anchor.TIME:
        raise click.UsageError(
            f"--time {text!r}: must be earliest, latest, max-timestamp, or a time as "
            "2026-01-31T12:00 (UTC), @ISO, @-1h"
        )
    return span.first.amount


def _find(client: Client, topics: Sequence[TopicView], timestamp: int) -> Offsets:
    wanted = {
        (one.name, Partition(number)): timestamp for one in topics for number in one.partitions
    }
    return client.run(list_offsets(client.view, wanted, Isolation.READ_UNCOMMITTED))


def _spans(
    topics: Sequence[TopicView], starts: Offsets, ends: Offsets
) -> list[tuple[str, int, int, int]]:
    keys = [(one.name, Partition(number)) for one in topics for number in one.partitions]
    return [(*key, starts[key].offset, ends[key].offset) for key in keys]


def _rows(topics: Sequence[TopicView], found: Offsets) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for one in topics:
        for number in one.partitions:
            at = found[one.name, Partition(number)]
            stamp = moment(at.timestamp) if at.timestamp >= 0 else None
            rows.append((one.name, number, _known(at.offset), stamp, _known(at.epoch)))
    return rows


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _document(topic: TopicView, found: Sequence[Offsets]) -> dict[str, object]:
    partitions: list[dict[str, object]] = []
    for number in topic.partitions:
        rows = [one[topic.name, Partition(number)] for one in found]
        if len(rows) == 2:
            partitions.append(
                {"partition": number, "earliest": rows[0].offset, "latest": rows[1].offset}
            )
        else:
            partitions.append(
                {
                    "partition": number,
                    "offset": _known(rows[0].offset),
                    "timestamp": _known(rows[0].timestamp),
                    "leader_epoch": _known(rows[0].epoch),
                }
            )
    return {"name": topic.name, "partitions": partitions}
