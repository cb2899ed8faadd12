"""`tidelog why partition`: who leads it, who lacks it, and what its readers wait for."""

from collections.abc import Callable, Mapping, Sequence

import click

from tidelog.clients.admin.configs import Kind, Resource, describe_configs
from tidelog.clients.admin.describe import replica_sizes
from tidelog.clients.admin.open_transactions import OpenTransaction
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import PartitionView
from tidelog.kernel.ids import BrokerId, Partition, uuid_text
from tidelog.tools.commands.why_words import emit, say
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import check_partition, connected, known_topics
from tidelog.tools.knowing import look, look_at_readers
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Target,
    bootstrap_options,
    fail,
    json_option,
    not_found,
    size,
    span,
    table,
    topic_and_partition,
)
from tidelog.tools.reasons import Known, Place, Reason, of_partition
from tidelog.tools.transaction_look import now_ms, see_readers
from tidelog.tools.transaction_reasons import Readers, idle_ms, of_readers, verdict
from tidelog.tools.view_reasons import of_view

MIN_IN_SYNC = "min.insync.replicas"
Row = dict[str, object]


@click.command(
    "partition",
    cls=Command,
    examples=(
        "tidelog why partition orders:0",
        "tidelog why partition orders:0 --json",
        "tidelog why partition orders:0 --bootstrap kafka:9092",
    ),
)
@click.argument("what", metavar="TOPIC:P", shell_complete=topic_names)
@bootstrap_options
@json_option
def partition(target: Target, *, what: str, as_json: bool) -> None:
    """Say why nobody leads it, replicas are missing, or readers of committed records wait.

    Also of a cluster that is down: what it knew last. Of another, named by --bootstrap: what the
    protocol tells.
    """
    name, number = topic_and_partition(what)
    if target.bootstrap:
        _elsewhere(target, name, number, as_json=as_json)
    else:
        _here(target, name, number, as_json=as_json)


# -- a cluster of ours --------------------------------------------------------------------------


def _here(target: Target, name: str, number: int, *, as_json: bool) -> None:
    known = look(target, [(name, Partition(number))])
    topic = known.image.names.get(name)
    if topic is None:
        raise not_found("topic", name, known.image.names, see="tidelog topic list")
    if number >= len(topic.partitions):
        fail(f"topic {name!r} has no partition {number}: see tidelog topic list", NOT_FOUND)
    place = Place(topic, number)
    view = place.view
    facts = {
        "topic": name,
        "topic_id": uuid_text(topic.id),
        "partition": number,
        "leader": view.leader if view.leader >= 0 else None,
        "leader_epoch": view.leader_epoch,
        "partition_epoch": view.partition_epoch,
        "min_insync_replicas": known.min_in_sync(topic),
        "replicas": [_replica(known, place, broker) for broker in view.replicas],
    }
    readers = look_at_readers(known.servers, (name, Partition(number)))
    reasons = of_partition(known, place)
    _tell(target, place.name, reasons, readers, facts, as_json=as_json)
    if not as_json:
        click.echo(f"\nwhat happened to it: tidelog timeline {place.word}")


def _replica(known: Known, place: Place, broker: BrokerId) -> Row:
    return {
        "broker": broker,
        "process": known.process(broker),
        "replica": _standing(place, broker),
        "size_bytes": known.sizes.get((place.topic.name, place.number, broker)),
    }


def _standing(place: Place, broker: BrokerId) -> str:
    """What it is to the partition, in words."""
    view = place.view
    words = [
        (broker == view.leader, "leader"),
        (broker in view.isr and broker != view.leader, "in sync"),
        (broker in view.elr, "eligible"),
        (broker in view.last_known, "last known"),
        (broker in view.adding, "coming"),
        (broker in view.removing, "going"),
    ]
    return ", ".join(word for holds, word in words if holds) or "not in sync"


# -- another ------------------------------------------------------------------------------------


def _elsewhere(target: Target, name: str, number: int, *, as_json: bool) -> None:
    with connected(target) as client:
        (topic,) = known_topics(client, [name])
        check_partition(topic, number)
        place = name, Partition(number)
        view = topic.partitions[number]
        sizes = client.run(replica_sizes(client.view, [place]))
        least = _min_in_sync(client, name)
        readers = see_readers(client, place)
        there = set(client.view.brokers)
    facts = {
        "topic": name,
        "topic_id": uuid_text(topic.topic_id) if topic.has_id else None,
        "partition": number,
        "leader": view.leader if view.leader in there else None,
        "leader_epoch": view.epoch,
        "partition_epoch": None,
        "min_insync_replicas": least,
        "replicas": [
            {
                "broker": broker,
                "process": None,
                "replica": _word(view, broker),
                "size_bytes": sizes.get((place, broker)),
            }
            for broker in view.replicas
        ],
    }
    word = f"{name}-{number}"
    _tell(target, word, of_view(word, view, there, least), readers, facts, as_json=as_json)


def _min_in_sync(client: Client, topic: str) -> int | None:
    resource = Resource(Kind.TOPIC, topic)
    found = client.run(describe_configs([resource]))[resource]
    told = next((one.value for one in found if one.name == MIN_IN_SYNC), None)
    return None if told is None else int(told)


def _word(view: PartitionView, broker: int) -> str:
    if broker == view.leader:
        return "leader"
    return "in sync" if broker in view.isr else "not in sync"


# -- telling ------------------------------------------------------------------------------------


def _tell(
    target: Target,
    name: str,
    reasons: Sequence[Reason],
    readers: Readers | None,
    facts: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    now = now_ms()
    found = list(reasons)
    if readers is not None:
        found += of_readers(readers, now, target.words)
    fine = (
        f"{name} is well: broker {facts['leader']}, the preferred one, leads it, and all "
        "replicas are in sync"
    )
    more = _facts(readers, now)
    if as_json:
        emit(found, fine, {**facts, **more})
        return
    say(found, fine)
    _table(facts["replicas"], _replica_row, ("BROKER", "PROCESS", "REPLICA", "SIZE"))
    if more["open_transactions"]:
        click.echo("")
        _table(more["open_transactions"], _open_row, _OPEN_COLUMNS)


_OPEN_COLUMNS = (
    "START OFFSET",
    "PRODUCER",
    "EPOCH",
    "IDLE",
    "TRANSACTIONAL ID",
    "STATE",
    "VERDICT",
)


def _facts(readers: Readers | None, now: int) -> Row:
    if readers is None:
        return {"stable_offset": None, "end_offset": None, "open_transactions": []}
    return {
        "stable_offset": readers.ends.stable,
        "end_offset": readers.ends.end,
        "open_transactions": [_open(one, now) for one in readers.open_here],
    }


def _table(rows: object, cells: Callable[[Row], Sequence[object]], columns: Sequence[str]) -> None:
    assert isinstance(rows, list)
    table([cells(one) for one in rows], columns)


def _replica_row(replica: Row) -> tuple[object, ...]:
    *words, held = replica.values()
    return (*words, size(held) if isinstance(held, int) else None)


def _open(one: OpenTransaction, now: int) -> Row:
    known = one.transaction
    return {
        "start_offset": one.start,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "idle_ms": idle_ms(one, now),
        "transactional_id": None if known is None else known.transactional_id,
        "state": None if known is None else known.state,
        "verdict": verdict(one, now),
    }


def _open_row(row: Row) -> tuple[object, ...]:
    return tuple(
        span(value) if name == "idle_ms" and isinstance(value, int) else value
        for name, value in row.items()
    )
