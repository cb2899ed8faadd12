"""`tidelog topic alter`: more partitions, other settings."""

from collections.abc import Sequence

import click

from tidelog.clients.admin.configs import Change, Kind, Operation, Resource, alter_configs
from tidelog.clients.admin.growth import create_partitions, wait_for_partitions
from tidelog.clients.admin.topics import TopicDone
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import TopicView
from tidelog.clients.failures import ClientError
from tidelog.kernel.instant import s
from tidelog.tools.commands.config import change, check_names, settle, why_refused
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    emit_json,
    fail,
    json_option,
    note,
)
from tidelog.wire.errors import ErrorCode, Rejected

VERSION = 1
SETTLE_NS = s(5)


@click.command(
    "alter",
    cls=Command,
    examples=(
        "tidelog topic alter orders --partitions 12",
        "tidelog topic alter orders -c retention.ms=86400000 --unset segment.ms",
    ),
)
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=topic_names)
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many there shall be.")
@click.option("-c", "--config", "configs", multiple=True, metavar="K=V", help="A topic setting.")
@click.option("--unset", "gone", multiple=True, metavar="K", help="A setting to take back.")
@bootstrap_options
@json_option
def alter(
    target: Target,
    names: Sequence[str],
    partitions: int | None,
    configs: Sequence[str],
    gone: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Give topics more partitions, or other settings.

    More partitions move keys: a record's key may lead to another partition than before.
    """
    changes = [*(change(text) for text in configs), *(Change(k, Operation.DELETE) for k in gone)]
    if partitions is None and not changes:
        raise click.UsageError("nothing to alter: say --partitions, --config or --unset")
    with connected(target) as client:
        topics = known_topics(client, names)
        # Settings first: they are refused more often, and partitions cannot be taken back.
        if changes:
            _set(client, topics, changes)
        if partitions is not None:
            _grow(client, topics, partitions)
        altered = [_document(client.view.topics[one.name], changes) for one in topics]
    if as_json:
        emit_json({"version": VERSION, "altered": altered})
        return
    taken = [f"{name} not set" for name in gone]
    for row in altered:
        made = [f"partitions {row['partitions']}"] if partitions is not None else []
        click.echo(f"altered {row['name']}: {', '.join([*made, *configs, *taken])}")


def _set(client: Client, topics: Sequence[TopicView], changes: Sequence[Change]) -> None:
    gone = [one.name for one in changes if one.operation is Operation.DELETE]
    if gone:
        check_names(client, Resource(Kind.TOPIC, topics[0].name), gone)
    for one in topics:
        resource = Resource(Kind.TOPIC, one.name)
        try:
            client.run(alter_configs(resource, changes))
        except Rejected as refused:
            why = why_refused(refused, Kind.TOPIC, changes)
            fail(f"topic {one.name!r} is not altered: {why}")
        settle(client, resource, changes)


def _grow(client: Client, topics: Sequence[TopicView], partitions: int) -> None:
    totals = dict.fromkeys((one.name for one in topics), partitions)
    if any(len(one.partitions) < partitions for one in topics):
        note(
            "warning: keys move: from now on a key may lead to another partition, "
            "while records that are there stay where they are"
        )
    done = client.run(create_partitions(client.view, totals))
    made = {one.name: one.partitions for one in done if one.code is ErrorCode.NONE}
    try:
        client.run(wait_for_partitions(client.view, made), SETTLE_NS)
    except ClientError:
        note("made, but not every partition has a leader yet")
    failed = [one for one in done if one.code is not ErrorCode.NONE]
    if failed:
        fail("; ".join(f"topic {one.name!r} has no more partitions: {_why(one)}" for one in failed))


def _why(one: TopicDone) -> str:
    return one.detail.rstrip(".") or one.code.name


def _document(topic: TopicView, changes: Sequence[Change]) -> dict[str, object]:
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "set": sorted(one.name for one in changes if one.operation is not Operation.DELETE),
        "unset": sorted(one.name for one in changes if one.operation is Operation.DELETE),
    }
