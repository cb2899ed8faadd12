"""`tidelog topic empty` and `tidelog topic delete-records`: delete from the front, for good."""

import time
from collections.abc import Mapping, Sequence

import click

from tidelog.clients.admin.delete_records import RecordsDeleted, delete_records
from tidelog.clients.admin.leaders import name_of
from tidelog.clients.client import Client
from tidelog.clients.consumer.offsets import Range, parse_range, plan_offsets
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import check_partition, connected, known_topics
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    confirm,
    emit_json,
    fail,
    json_option,
    yes_option,
)
from tidelog.wire.errors import ErrorCode

VERSION = 1
EVERYTHING = parse_range("end", WallMs(0))
SENTENCES = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the partition ends before that offset",
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy is compact alone: records go by their keys",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "it is an internal topic",
}


@click.command(
    "empty",
    cls=Command,
    examples=("tidelog topic empty orders", "tidelog topic empty orders --yes --json"),
)
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=topic_names)
@yes_option
@bootstrap_options
@json_option
def empty(target: Target, names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Delete all records that topics have now; the topics and their settings stay."""
    with connected(target) as client:
        topics = known_topics(client, names)
        confirm(f"all records of {', '.join(one.name for one in topics)}", yes=yes)
        partitions = [(one.name, Partition(number)) for one in topics for number in one.partitions]
        before = _before(client, partitions, EVERYTHING)
        done = client.run(delete_records(client.view, before))
    _finish(before, done, as_json=as_json)


@click.command(
    "delete-records",
    cls=Command,
    examples=(
        "tidelog topic delete-records orders --partition 0 --before-offset 1000",
        "tidelog topic delete-records orders --partition 2 --before-offset @-7d --yes",
    ),
)
@click.argument("name", shell_complete=topic_names)
@click.option(
    "--partition", "number", metavar="P", type=click.IntRange(0), required=True, help="Of which."
)
@click.option(
    "--before-offset",
    "text",
    metavar="N",
    required=True,
    help="The first offset to keep: 123, -10 (from the end), end, @ISO (UTC), @-1h.",
)
@yes_option
@bootstrap_options
@json_option
def delete_some(
    target: Target, name: str, number: int, text: str, *, yes: bool, as_json: bool
) -> None:
    """Delete the records of one partition that lie before an offset."""
    point = _point(text)
    with connected(target) as client:
        (topic,) = known_topics(client, [name])
        check_partition(topic, number)
        before = _before(client, [(name, Partition(number))], point)
        (offset,) = before.values()
        confirm(f"the records of {name}-{number} before offset {offset}", yes=yes)
        done = client.run(delete_records(client.view, before))
    _finish(before, done, as_json=as_json)


def _point(text: str) -> Range:
    try:
        point = parse_range(text, WallMs(time.time_ns() // 1_000_000))
    except ValueError as error:
        raise click.UsageError(f"--before-offset: {error}") from None
    if point.stop is not None:
        raise click.UsageError(f"--before-offset {text!r}: must be one offset, not a range")
    return point


def _before(
    client: Client, partitions: Sequence[TopicPartition], point: Range
) -> dict[TopicPartition, int]:
    """The offsets now: what is written while this runs is not deleted."""
    places = client.run(plan_offsets(client.view, partitions, point))
    return {one: place.first for one, place in places.items()}


def _finish(
    before: Mapping[TopicPartition, int],
    done: Mapping[TopicPartition, RecordsDeleted],
    *,
    as_json: bool,
) -> None:
    """Say where partitions begin now; fail where something did not work."""
    worked = {one: row.start for one, row in done.items() if row.code is ErrorCode.NONE}
    failed = {one: row.code for one, row in done.items() if one not in worked}
    _tell(worked, as_json=as_json)
    if failed:
        fail("; ".join(_kept(one, before[one], code) for one, code in failed.items()))


def _tell(worked: Mapping[TopicPartition, int], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"topic": topic, "partition": number, "start": start}
            for (topic, number), start in worked.items()
        ]
        emit_json({"version": VERSION, "deleted": rows})
    else:
        for one, start in worked.items():
            click.echo(f"{name_of(one)} begins at offset {start} now")


def _kept(partition: TopicPartition, before: int, code: ErrorCode) -> str:
    reason = SENTENCES.get(code, code.name)
    return f"{name_of(partition)} keeps its records before {before}: {reason}"
