"""`tidelog why`: a sentence that says what is the matter, then the facts it is made of."""

import click

from tidelog.kernel.ids import BrokerId
from tidelog.tools.commands.why_group import group
from tidelog.tools.commands.why_partition import partition
from tidelog.tools.commands.why_txn import txn
from tidelog.tools.commands.why_words import emit, say
from tidelog.tools.knowing import look
from tidelog.tools.output import (
    NOT_FOUND,
    Group,
    Target,
    cluster_options,
    fail,
    json_option,
    table,
)
from tidelog.tools.reasons import Known, hosts, of_broker
from tidelog.tools.timeline import Entry
from tidelog.tools.timeline_page import said

_EVENTS_SHOWN = 5


@click.group(
    "why",
    cls=Group,
    examples=(
        "tidelog why partition orders:0",
        "tidelog why group billing",
        "tidelog why txn billing-1",
    ),
)
def why() -> None:
    """Say why something is as it is, and what to do."""


why.add_command(group)
why.add_command(partition)
why.add_command(txn)


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
        emit(reasons, fine, facts)
    else:
        say(reasons, fine)
        rows = [(one.at, one.process, one.event.replace("_", " "), said(one)) for one in events]
        table(rows, ("TIME", "PROCESS", "EVENT", "WHAT"))


def _registration(known: Known, number: int) -> dict[str, object]:
    """The broker as the metadata log tells it."""
    view = known.image.brokers.get(BrokerId(number))
    return {
        "broker": number,
        "process": known.process(number),
        "fenced": view is None or view.fenced,
        "stopping": view is not None and view.stopping,
        "broker_epoch": None if view is None else view.epoch,
        "rack": None if view is None else view.rack,
    }


def _is_about(event: Entry, broker: int) -> bool:
    return event.partition < 0 and event.fields.get("broker") == broker
