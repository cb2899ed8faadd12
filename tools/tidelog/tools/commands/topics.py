"""`tidelog topic`: list, create and delete, on any Kafka cluster."""

import dataclasses
from collections.abc import Sequence

import click

from tidelog.clients.admin.configs import Kind
from tidelog.clients.admin.topics import (
    BROKER_CHOOSES,
    NewTopic,
    TopicDone,
    create_topics,
    delete_topics,
    wait_for_topics,
    wait_without_topics,
)
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import TopicView, refresh
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import uuid_text
from tidelog.kernel.instant import s
from tidelog.tools.commands.config import meant
from tidelog.tools.commands.topic_alter import alter
from tidelog.tools.commands.topic_describe import describe
from tidelog.tools.commands.topic_offsets import offsets
from tidelog.tools.commands.topic_records import delete_some, empty
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import (
    Group,
    Target,
    bootstrap_options,
    confirm,
    emit_json,
    fail,
    json_option,
    note,
    table,
    yes_option,
)
from tidelog.wire.errors import ErrorCode

VERSION = 1
SETTLE_NS = s(5)
"""How long a finished create or delete may take to be seen."""
SENTENCES = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name is 1 to 249 letters, digits, '.', '_' or '-'",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the cluster cannot keep that many replicas",
    ErrorCode.INVALID_PARTITIONS: "that many partitions are not possible",
    ErrorCode.TOPIC_DELETION_DISABLED: "the cluster does not allow deleting topics",
}


@click.group(
    "topic",
    cls=Group,
    examples=("tidelog topic create orders -p 6", "tidelog topic describe orders"),
)
def topic() -> None:
    """Create, list, describe, change and delete topics."""


topic.add_command(alter)
topic.add_command(describe)
topic.add_command(offsets)
topic.add_command(empty)
topic.add_command(delete_some)


# -- list ---------------------------------------------------------------------------------------


@topic.command("list", examples=("tidelog topic list", "tidelog topic list -b kafka:9092 --json"))
@bootstrap_options
@json_option
def list_(target: Target, *, as_json: bool) -> None:
    """List all topics."""
    with connected(target) as client:
        client.run(refresh(client.view, None))
        topics = [client.view.topics[name] for name in sorted(client.view.topics)]
    if as_json:
        emit_json({"version": VERSION, "topics": [_listed(one) for one in topics]})
        return
    rows = [(one.name, len(one.partitions), _replication(one)) for one in topics]
    table(rows, ("TOPIC", "PARTITIONS", "REPLICAS"))


def _listed(one: TopicView) -> dict[str, object]:
    return {
        "name": one.name,
        "topic_id": uuid_text(one.topic_id) if one.has_id else None,
        "internal": one.internal,
        "partitions": len(one.partitions),
        "replication_factor": _replication(one),
    }


def _replication(one: TopicView) -> int:
    return max((len(partition.replicas) for partition in one.partitions.values()), default=0)


# -- create -------------------------------------------------------------------------------------


@topic.command(
    "create",
    examples=(
        "tidelog topic create orders -p 6",
        "tidelog topic create audit -r 3 -c retention.ms=86400000",
    ),
)
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(1), help="Default: the cluster's.")
@click.option("-r", "--replication-factor", type=click.IntRange(1, 32767), help="As --partitions.")
@click.option("-c", "--config", "configs", multiple=True, metavar="K=V", help="A topic setting.")
@click.option("--assignment", metavar="0:1,1:2", help="Replicas of each partition, leader first.")
@bootstrap_options
@json_option
def create(  # noqa: PLR0913 -- the options of the command
    target: Target,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    assignment: str | None,
    *,
    as_json: bool,
) -> None:
    """Create topics; returns once they can be used."""
    replicas = _assignment(assignment, fixed=partitions or replication_factor)
    settings = dict(_setting(text) for text in configs)
    wanted = [
        NewTopic(
            name,
            partitions or BROKER_CHOOSES,
            replication_factor or BROKER_CHOOSES,
            settings,
            replicas,
        )
        for name in dict.fromkeys(names)
    ]
    with connected(target) as client:
        done = client.run(create_topics(client.view, wanted))
        made = [one.name for one in done if one.code is ErrorCode.NONE]
        _settle(client, made)
        created = [_created(client.view.topics.get(one.name), one) for one in done]
    explained = [_with_nearest(one, list(settings)) for one in done]
    _finish("created", created, explained, as_json=as_json)


def _with_nearest(one: TopicDone, settings: Sequence[str]) -> TopicDone:
    """Other clusters say that a setting is unknown, and leave it at that."""
    if one.code is not ErrorCode.INVALID_CONFIG:
        return one
    detail = one.detail.rstrip(".")
    return dataclasses.replace(one, detail=detail + meant(settings, Kind.TOPIC, detail))


def _assignment(text: str | None, *, fixed: int | None) -> list[list[int]]:
    if text is None:
        return []
    if fixed:
        raise click.UsageError("--assignment says partitions and replicas: leave out -p and -r")
    try:
        rows = [[int(broker) for broker in row.split(":")] for row in text.split(",")]
    except ValueError:
        rows = []
    if not rows or len({len(row) for row in rows}) != 1 or any(min(row) < 0 for row in rows):
        raise click.UsageError(
            f"--assignment {text!r}: must be brokers as in 0:1,1:2, the same number a partition"
        )
    return rows


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--config {text!r}: must be NAME=VALUE")
    return name, value


def _settle(client: Client, made: Sequence[str]) -> None:
    if not made:
        return
    try:
        client.run(wait_for_topics(client.view, made), SETTLE_NS)
    except ClientError:
        note(f"made, but not every partition has a leader yet: {', '.join(made)}")


def _created(view: TopicView | None, one: TopicDone) -> dict[str, object]:
    return {
        "name": one.name,
        "topic_id": uuid_text(view.topic_id) if view is not None and view.has_id else None,
        "partitions": one.partitions if view is None else len(view.partitions),
        "replication_factor": one.replication_factor if view is None else _replication(view),
    }


# -- delete -------------------------------------------------------------------------------------


@topic.command("delete", examples=("tidelog topic delete orders", "tidelog topic delete a b --yes"))
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=topic_names)
@yes_option
@bootstrap_options
@json_option
def delete(target: Target, names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    with connected(target) as client:
        known = [one.name for one in known_topics(client, names)]
        confirm(f"{', '.join(known)} with all records", yes=yes)
        done = client.run(delete_topics(client.view, known))
        gone = [one.name for one in done if one.code is ErrorCode.NONE]
        try:
            client.run(wait_without_topics(client.view, gone), SETTLE_NS)
        except ClientError:
            note("deleted, but still listed by a broker")
    _finish("deleted", [{"name": one.name} for one in done], done, as_json=as_json)


def _finish(
    word: str, rows: Sequence[dict[str, object]], done: Sequence[TopicDone], *, as_json: bool
) -> None:
    """Say what worked; fail where something did not."""
    worked = [row for row, one in zip(rows, done, strict=True) if one.code is ErrorCode.NONE]
    if as_json:
        emit_json({"version": VERSION, word: worked})
    else:
        for row in worked:
            click.echo(f"{word} {row['name']}{_extent(row)}")
    failed = [one for one in done if one.code is not ErrorCode.NONE]
    if failed:
        fail("; ".join(f"topic {one.name!r} is not {word}: {_why(one)}" for one in failed))


def _extent(row: dict[str, object]) -> str:
    if "partitions" not in row:
        return ""
    return f": partitions {row['partitions']}, replicas {row['replication_factor']}"


def _why(one: TopicDone) -> str:
    if one.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return "it exists already"
    return one.detail.rstrip(".") or SENTENCES.get(one.code, one.code.name)
