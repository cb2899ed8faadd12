"""`tidelog group reset-offsets`: where a group shall go on reading."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from tidelog.clients.admin.group_offsets import commit_offsets, committed_offsets
from tidelog.clients.admin.groups import describe_group
from tidelog.clients.admin.offsets import END, START, list_offsets
from tidelog.clients.client import Client
from tidelog.clients.consumer.at_times import first_at_times
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import check_partition, connected, known_topics
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    counted,
    emit_json,
    fail,
    json_option,
    note,
    table,
)
from tidelog.tools.resetting import (
    Goal,
    Known,
    ResettingError,
    Row,
    To,
    clamped,
    duration_ago_ms,
    moment_ms,
    read_csv,
    reset,
    write_csv,
)
from tidelog.wire.errors import ErrorCode

VERSION = 1
_GOALS = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, "
    "--shift-by or --from-file"
)
_ACTIVE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})


class Asked(NamedTuple):
    """Exactly one of them is said."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    shift_by: int | None
    from_file: Path | None


@click.command(
    "reset-offsets",
    cls=Command,
    examples=(
        "tidelog group reset-offsets billing --topic orders --to-earliest",
        "tidelog group reset-offsets billing --all-topics --by-duration PT2H --execute",
        "tidelog group reset-offsets billing --all-topics --to-current --export > offsets.csv",
    ),
)
@click.argument("name", metavar="GROUP")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P,…]",
    shell_complete=topic_names,
    help="This topic, or these partitions of it.",
)
@click.option("--all-topics", is_flag=True, help="All that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-current", is_flag=True, help="Where it is; behind the last where it is not.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="This offset.")
@click.option("--to-datetime", metavar="ISO", help="The first record at or after this time.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="The first record not older than this.")
@click.option("--shift-by", type=int, metavar="N", help="So many on; back where negative.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CSV",
    help="Lines of topic,partition,offset, as --export prints them.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be: the default.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print it as lines of topic,partition,offset.")
@bootstrap_options
@json_option
def reset_offsets(  # noqa: PLR0913 -- the options of the command
    target: Target,
    name: str,
    topics: Sequence[str],
    *,
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    as_json: bool,
    **goal: object,
) -> None:
    """Have a group that nobody is in go on elsewhere; a dry run, unless --execute is said."""
    _check(dry_run + execute + export < 2, "--dry-run, --execute and --export: say one of them")
    _check(not (export and as_json), "--export and --json: say one of them")
    wanted = _goal(Asked(**goal))  # type: ignore[arg-type]  # the options above, by their names
    _check(
        wanted.to is To.FILE or bool(topics) != all_topics,
        "say which partitions: --topic T[:P,…], or --all-topics",
    )
    with connected(target) as client:
        scope = _scope(client, name, topics, wanted)
        rows = _rows(client, name, scope, wanted)
        for sentence in clamped(rows):
            note(sentence)
        if execute:
            _execute(client, name, rows)
    if export:
        click.echo(write_csv(rows), nl=False)
    elif as_json:
        emit_json({"version": VERSION, "group": name, "executed": execute, "offsets": _json(rows)})
    else:
        _print(rows, executed=execute)


def _check(is_right: bool, complaint: str) -> None:  # noqa: FBT001 -- it reads as a sentence
    if not is_right:
        raise click.UsageError(complaint)


def _print(rows: Sequence[Row], *, executed: bool) -> None:
    table([(*row.partition, row.before, row.offset) for row in rows], _COLUMNS)
    if not executed:
        note("nothing is changed: add --execute")


_COLUMNS = ("TOPIC", "PARTITION", "CURRENT", "NEW")


def _json(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {
            "topic": row.partition[0],
            "partition": row.partition[1],
            "current": row.before,
            "new": row.offset,
            "clamped": row.asked != row.offset,
        }
        for row in rows
    ]


# -- what is asked ------------------------------------------------------------------------------


def _goal(asked: Asked) -> Goal:
    said = [value for value in asked if value is not None and value is not False]
    if len(said) != 1:
        raise click.UsageError(f"say one of {_GOALS}")
    try:
        return _parsed(asked)
    except ResettingError as error:
        raise click.UsageError(str(error)) from error


def _parsed(asked: Asked) -> Goal:
    for to, number in ((To.OFFSET, asked.to_offset), (To.SHIFT, asked.shift_by)):
        if number is not None:
            return Goal(to, number)
    if asked.to_datetime is not None:
        at_ms, said = moment_ms(asked.to_datetime)
        if said:
            note(said)
        return Goal(To.TIME, at_ms)
    if asked.by_duration is not None:
        return Goal(To.TIME, duration_ago_ms(asked.by_duration, datetime.now(UTC)))
    if asked.from_file is not None:
        return Goal(To.FILE, offsets=read_csv(asked.from_file.read_text(encoding="utf-8")))
    words = {To.EARLIEST: asked.to_earliest, To.LATEST: asked.to_latest, To.CURRENT: True}
    return Goal(next(to for to, is_said in words.items() if is_said))


def _scope(client: Client, name: str, topics: Sequence[str], goal: Goal) -> list[TopicPartition]:
    """The partitions that are meant; they exist."""
    if topics:
        named = _named(client, topics)
        return [one for one in named if goal.to is not To.FILE or one in goal.offsets]
    if goal.to is To.FILE:
        places = list(goal.offsets)
    else:
        places = list(client.run(committed_offsets(client.view, name)))
        if not places:
            fail(f"group {name!r} has committed nothing: name the topics with --topic")
    views = {one.name: one for one in known_topics(client, sorted({one for one, _ in places}))}
    for topic, number in places:
        check_partition(views[topic], number)
    return places


def _named(client: Client, topics: Sequence[str]) -> list[TopicPartition]:
    split = [_place(text) for text in topics]
    views = {one.name: one for one in known_topics(client, [name for name, _ in split])}
    named: dict[TopicPartition, None] = {}
    for name, numbers in split:
        for number in numbers or views[name].partitions:
            check_partition(views[name], number)
            named[name, Partition(number)] = None
    return list(named)


def _place(text: str) -> tuple[str, list[int]]:
    name, colon, numbers = text.partition(":")
    words = numbers.split(",") if colon else []
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise click.UsageError(f"{text!r}: must be TOPIC or TOPIC:PARTITION,…")
    return name, [int(word) for word in words]


# -- what becomes of it -------------------------------------------------------------------------


def _rows(client: Client, name: str, scope: Sequence[TopicPartition], goal: Goal) -> list[Row]:
    committed = client.run(committed_offsets(client.view, name))
    starts, ends = (_offsets(client, scope, at) for at in (START, END))
    times = _at_time(client, scope, goal.number) if goal.to is To.TIME else {}
    known = {
        one: Known(
            starts[one],
            ends[one],
            committed[one].offset if one in committed else None,
            times.get(one, -1),
        )
        for one in scope
    }
    try:
        return reset(goal, known)
    except ResettingError as error:
        fail(str(error))


def _offsets(
    client: Client, scope: Sequence[TopicPartition], at: int
) -> Mapping[TopicPartition, int]:
    wanted = dict.fromkeys(scope, at)
    found = client.run(list_offsets(client.view, wanted, Isolation.READ_UNCOMMITTED))
    return {one: offset.offset for one, offset in found.items()}


def _at_time(
    client: Client, scope: Sequence[TopicPartition], timestamp: int
) -> Mapping[TopicPartition, int]:
    """The first records that are not older; markers of transactions do not count."""
    wanted = dict.fromkeys(scope, timestamp)
    found = client.run(first_at_times(client.view, wanted, Isolation.READ_UNCOMMITTED))
    return {one: offset.offset for one, offset in found.items()}


def _execute(client: Client, name: str, rows: Sequence[Row]) -> None:
    found = client.run(describe_group(client.view, name))
    if found is not None and found.members:
        members = counted(len(found.members), "member")
        fail(f"group {name!r} has {members}: stop them first; see tidelog group describe {name}")
    codes = client.run(
        commit_offsets(client.view, name, {row.partition: row.offset for row in rows})
    )
    bad = {one: code for one, code in codes.items() if code is not ErrorCode.NONE}
    if _ACTIVE.intersection(bad.values()):
        fail(f"group {name!r} has members again: stop them first")
    if bad:
        (topic, partition), code = next(iter(bad.items()))
        fail(f"{topic}-{partition} was not set: {code.name}")
