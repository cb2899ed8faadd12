"""`tidelog why`: a sentence that says what is the matter, then the facts it is made of."""

from collections.abc import Mapping, Sequence

import click

from tidelog.kernel.ids import BrokerId, Partition, uuid_text
from tidelog.tools.completing import topic_names
from tidelog.tools.knowing import look
from tidelog.tools.output import (
    NOT_FOUND,
    Group,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
    not_found,
    size,
    table,
)
from tidelog.tools.reasons import Known, Place, Reason, hosts, of_broker, of_partition
from tidelog.tools.timeline import Entry
from tidelog.tools.timeline_page import said

VERSION = 1
_EVENTS_SHOWN = 5


@click.group(
    "why",
    cls=Group,
    examples=("tidelog why partition orders:0", "tidelog why broker 2"),
)
def why() -> None:
    """Say why something is as it is, and what to do."""


# -- partition ----------------------------------------------------------------------------------


@why.command(
    "partition",
    examples=("tidelog why partition orders:0", "tidelog why partition orders:0 --json"),
)
@click.argument("what", metavar="TOPIC:P", shell_complete=topic_names)
@cluster_options
@json_option
def partition(target: Target, *, what: str, as_json: bool) -> None:
    """Say why nobody leads it, replicas are missing, or another than the preferred one leads.

    Also of a cluster that is down: what it knew last.
    """
    name, number = _named(what)
    known = look(target, [(name, Partition(number))])
    topic = known.image.names.get(name)
    if topic is None:
        raise not_found("topic", name, known.image.names, see="tidelog topic list")
    if number >= len(topic.partitions):
        fail(f"topic {name!r} has no partition {number}: see tidelog topic list", NOT_FOUND)
    place = Place(topic, number)
    reasons = of_partition(known, place)
    view = place.view
    fine = (
        f"{place.name} is well: broker {view.leader}, the preferred one, leads it, and all "
        "replicas are in sync"
    )
    rows = [_replica(known, place, broker) for broker in view.replicas]
    if as_json:
        facts = {
            "topic": name,
            "topic_id": uuid_text(topic.id),
            "partition": number,
            "leader": view.leader if view.leader >= 0 else None,
            "leader_epoch": view.leader_epoch,
            "partition_epoch": view.partition_epoch,
            "min_insync_replicas": known.min_in_sync(topic),
            "replicas": rows,
        }
        _emit(reasons, fine, facts)
        return
    _say(reasons, fine)
    table([_row(one) for one in rows], ("BROKER", "PROCESS", "REPLICA", "SIZE"))
    click.echo(f"\nwhat happened to it: tidelog timeline {place.word}")


def _replica(known: Known, place: Place, broker: BrokerId) -> dict[str, object]:
    held = known.sizes.get((place.topic.name, place.number, broker))
    return {
        "broker": broker,
        "process": _process(known, broker),
        "replica": _standing(place, broker),
        "size_bytes": held,
    }


def _row(replica: Mapping[str, object]) -> tuple[object, ...]:
    *words, held = replica.values()
    return (*words, size(held) if isinstance(held, int) else None)


def _process(known: Known, broker: int) -> str:
    return "down" if known.states is None else known.states.get(broker, "missing")


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


# -- broker -------------------------------------------------------------------------------------


@why.command("broker", examples=("tidelog why broker 2", "tidelog why broker 2 --json"))
@click.argument("number", metavar="ID", type=click.IntRange(0))
@cluster_options
@json_option
def broker(target: Target, *, number: int, as_json: bool) -> None:
    """Say why a broker is down, fenced, not in sync, or does not lead what it should."""
    known = look(target)
    ids = {*known.image.brokers, *(known.states or ())}
    if number not in ids:
        there = ", ".join(map(str, sorted(ids)))
        fail(f"there is no broker {number}: the brokers are {there}", NOT_FOUND)
    reasons = of_broker(known, number)
    views = [one.view for one in hosts(known.image, number)]
    leads = sum(view.leader == number for view in views)
    fine = (
        f"broker {number} is well: it leads {leads} of its {len(views)} partitions, as it should, "
        "and is in sync in all of them"
    )
    events = [one for one in known.events if _is_about(one, number)][-_EVENTS_SHOWN:]
    if as_json:
        facts = {
            **_registration(known, number),
            "leaders": leads,
            "replicas": len(views),
            "in_sync": sum(number in view.isr for view in views),
            "events": [{"at": one.at, "event": one.event, **one.fields} for one in events],
        }
        _emit(reasons, fine, facts)
    else:
        _say(reasons, fine)
        rows = [(one.at, one.process, one.event.replace("_", " "), said(one)) for one in events]
        table(rows, ("TIME", "PROCESS", "EVENT", "WHAT"))


def _registration(known: Known, number: int) -> dict[str, object]:
    """The broker as the metadata log tells it."""
    view = known.image.brokers.get(BrokerId(number))
    return {
        "broker": number,
        "process": _process(known, number),
        "fenced": view is None or view.fenced,
        "stopping": view is not None and view.stopping,
        "broker_epoch": None if view is None else view.epoch,
        "rack": None if view is None else view.rack,
    }


def _is_about(event: Entry, broker: int) -> bool:
    return event.partition < 0 and event.fields.get("broker") == broker


# -- telling ------------------------------------------------------------------------------------


def _say(reasons: Sequence[Reason], fine: str) -> None:
    for one in reasons:
        click.echo(one.sentence)
    if not reasons:
        click.echo(fine)
    remedies = _remedies(reasons)
    for command in remedies:
        click.echo(f"  try: {command}")
    click.echo("")


def _remedies(reasons: Sequence[Reason]) -> list[str]:
    return list(dict.fromkeys(remedy for one in reasons for remedy in one.remedies))


def _emit(reasons: Sequence[Reason], fine: str, facts: dict[str, object]) -> None:
    rows = [{"code": one.code, "broker": one.broker, "sentence": one.sentence} for one in reasons]
    sentence = reasons[0].sentence if reasons else fine
    document = {"version": VERSION, "well": not reasons, "sentence": sentence}
    emit_json({**document, "reasons": rows, "remedies": _remedies(reasons), **facts})


def _named(text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{text!r}: must be TOPIC:PARTITION")
    return topic, int(number)
