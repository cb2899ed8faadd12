"""`tidelog topic`: list, create, describe and delete, on any Kafka cluster."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import click

from tidelog.clients.admin.configs import Kind
from tidelog.clients.admin.describe import eligible_replicas, replica_sizes
from tidelog.clients.admin.offsets import END, START, FoundOffset, peek_offsets
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
from tidelog.clients.cluster_view import PartitionView, TopicView, refresh
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import Partition, TopicPartition, uuid_text
from tidelog.kernel.instant import s
from tidelog.tools.commands.config import meant
from tidelog.tools.commands.topic_alter import alter
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
    size,
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


# -- describe -----------------------------------------------------------------------------------

COLUMNS = (
    "TOPIC",
    "PARTITION",
    "LEADER",
    "EPOCH",
    "REPLICAS",
    "ISR",
    "ELR",
    "HIGH WATERMARK",
    "LOG START",
    "SIZE",
)


@topic.command(
    "describe",
    examples=("tidelog topic describe orders", "tidelog topic describe --unavailable"),
)
@click.argument("names", metavar="[NAME…]", nargs=-1, shell_complete=topic_names)
@click.option("--under-replicated", is_flag=True, help="Only where replicas are not in sync.")
@click.option("--unavailable", is_flag=True, help="Only where nobody leads.")
@bootstrap_options
@json_option
def describe(
    target: Target,
    names: Sequence[str],
    *,
    under_replicated: bool,
    unavailable: bool,
    as_json: bool,
) -> None:
    """Show the partitions of topics, of all where none is named."""
    with connected(target) as client:
        topics = _topics_of(client, names)
        facts = _Facts(client, topics)

    keep = partial(_is_chosen, facts, under_replicated=under_replicated, gone=unavailable)
    chosen = [(one, _numbers(one, keep)) for one in topics]
    if under_replicated or unavailable:
        chosen = [(one, numbers) for one, numbers in chosen if numbers]
    _show(facts, chosen, as_json=as_json)


def _show(facts: "_Facts", chosen: Sequence[tuple[TopicView, list[int]]], *, as_json: bool) -> None:
    if as_json:
        documents = [facts.document(one, numbers) for one, numbers in chosen]
        emit_json({"version": VERSION, "topics": documents})
    else:
        table([facts.row(one, number) for one, numbers in chosen for number in numbers], COLUMNS)


def _numbers(one: TopicView, keep: Callable[[PartitionView], bool]) -> list[int]:
    return [number for number, partition in one.partitions.items() if keep(partition)]


def _topics_of(client: Client, names: Sequence[str]) -> list[TopicView]:
    """Those that are named; where none is, all."""
    if names:
        return known_topics(client, names)
    client.run(refresh(client.view, None))
    return [client.view.topics[name] for name in sorted(client.view.topics)]


def _is_chosen(
    facts: "_Facts", partition: PartitionView, *, under_replicated: bool, gone: bool
) -> bool:
    if under_replicated and len(partition.isr) >= len(partition.replicas):
        return False
    return not gone or partition.leader not in facts.brokers


class _Facts:
    """What is asked besides Metadata; what a cluster cannot tell is None."""

    def __init__(self, client: Client, topics: Iterable[TopicView]) -> None:
        self.brokers = frozenset(client.view.brokers)
        names = [one.name for one in topics]
        partitions = [
            (name, Partition(number))
            for name in names
            for number in client.view.topics[name].partitions
        ]
        view = client.view
        self._starts = client.run(peek_offsets(view, dict.fromkeys(partitions, START)))
        self._ends = client.run(peek_offsets(view, dict.fromkeys(partitions, END)))
        self._eligible = client.run(eligible_replicas(names))
        self._sizes = client.run(replica_sizes(view, partitions))

    def document(self, one: TopicView, numbers: Iterable[int]) -> dict[str, object]:
        return {
            "name": one.name,
            "topic_id": uuid_text(one.topic_id) if one.has_id else None,
            "internal": one.internal,
            "partitions": [self._partition(one, number) for number in numbers],
        }

    def _partition(self, one: TopicView, number: int) -> dict[str, object]:
        view = one.partitions[number]
        key = (one.name, Partition(number))
        eligible = self._eligible.get(key)
        return {
            "partition": number,
            "leader": view.leader if view.leader in self.brokers else None,
            "leader_epoch": view.epoch if view.epoch >= 0 else None,
            "replicas": list(view.replicas),
            "isr": list(view.isr),
            "elr": None if eligible is None else list(eligible),
            "offline": list(view.offline),
            "high_watermark": _offset(self._ends.get(key)),
            "log_start": _offset(self._starts.get(key)),
            "size_bytes": self._size(key, view),
        }

    def row(self, one: TopicView, number: int) -> tuple[object, ...]:
        facts = self._partition(one, number)
        byte_count = facts["size_bytes"]
        return (
            one.name,
            number,
            *(facts[name] for name in ("leader", "leader_epoch", "replicas", "isr", "elr")),
            *(facts[name] for name in ("high_watermark", "log_start")),
            size(byte_count) if isinstance(byte_count, int) else None,
        )

    def _size(self, key: TopicPartition, view: PartitionView) -> int | None:
        """The leader's; of a partition without one, the largest that is left."""
        of_leader = self._sizes.get((key, view.leader))
        if of_leader is not None:
            return of_leader
        known = (self._sizes.get((key, broker)) for broker in view.replicas)
        return max((one for one in known if one is not None), default=None)


def _offset(found: FoundOffset | None) -> int | None:
    return None if found is None else found.offset
