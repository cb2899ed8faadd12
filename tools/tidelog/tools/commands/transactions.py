"""`tidelog txn`: transactions as their coordinators know them, on any Kafka cluster."""

from collections.abc import Sequence

import click

from tidelog.clients.admin.producers import Producers, describe_producers
from tidelog.clients.admin.transactions import (
    DescribedTransaction,
    State,
    Wanted,
    list_transactions,
)
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.tools.commands.transaction_abort import abort
from tidelog.tools.commands.transaction_hanging import hanging
from tidelog.tools.connecting import connected
from tidelog.tools.lengths import length
from tidelog.tools.output import (
    Group,
    Target,
    bootstrap_options,
    emit_json,
    escaped,
    json_option,
    moment,
    nearest,
    span,
    table,
)
from tidelog.tools.transaction_look import known_transactions, now_ms
from tidelog.tools.transaction_reasons import age_ms, waits_for
from tidelog.wire.errors import ErrorCode, Rejected

VERSION = 1
_LOOKS = 2
_STATES = [one.value for one in State]


def _known_states(
    _ctx: click.Context, _parameter: click.Parameter, texts: Sequence[str]
) -> frozenset[str]:
    """In Kafka's spelling, however they were typed."""
    known = {one.lower(): one for one in _STATES}
    for text in texts:
        if text.lower() not in known:
            near = nearest(text.capitalize(), _STATES) or f": there are {', '.join(_STATES)}"
            raise click.UsageError(f"--state {text!r} is no state of a transaction{near}")
    return frozenset(known[text.lower()] for text in texts)


@click.group(
    "txn",
    cls=Group,
    examples=(
        "tidelog txn list --state Ongoing",
        "tidelog txn describe billing-1",
        "tidelog txn hanging",
    ),
)
def txn() -> None:
    """List, describe and end transactions, and find hanging ones."""


txn.add_command(abort)
txn.add_command(hanging)


# -- list ---------------------------------------------------------------------------------------


@txn.command(
    "list",
    examples=(
        "tidelog txn list",
        "tidelog txn list --state Ongoing --running-longer-than 5m",
        "tidelog txn list --pattern 'billing-.*' --json",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    callback=_known_states,
    help=f"Only those in this state: {', '.join(_STATES)}; may be given several times.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    metavar="N",
    type=click.IntRange(0),
    help="Only that of this producer; may be given several times.",
)
@click.option(
    "--running-longer-than",
    "longer_than_ms",
    metavar="D",
    callback=length,
    help="Only those that are open for longer, as 90s, 5m or 1h30m.",
)
@click.option("--pattern", metavar="RE", help="Only ids that this regular expression matches.")
@bootstrap_options
@json_option
def list_(
    target: Target,
    *,
    states: frozenset[str],
    producer_ids: Sequence[int],
    longer_than_ms: int | None,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List the transactional ids, and what state their transactions are in."""
    wanted = Wanted(states, frozenset(producer_ids), longer_than_ms, pattern)
    with connected(target) as client:
        try:
            found = client.run(list_transactions(client.view, now_ms(), wanted))
        except Rejected as error:
            if error.code is ErrorCode.INVALID_REGULAR_EXPRESSION:
                said = f"--pattern {pattern!r} is no regular expression that the cluster takes"
                raise click.UsageError(said) from None
            raise
    if as_json:
        rows = [
            {
                "transactional_id": one.transactional_id,
                "state": one.state,
                "producer_id": one.producer_id,
                "coordinator": one.coordinator,
            }
            for one in found
        ]
        emit_json({"version": VERSION, "transactions": rows})
        return
    table(
        [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found],
        ("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"),
    )


# -- describe -----------------------------------------------------------------------------------


@txn.command(
    "describe",
    examples=("tidelog txn describe billing-1", "tidelog txn describe billing-1 billing-2 --json"),
)
@click.argument("names", metavar="ID…", nargs=-1, required=True)
@bootstrap_options
@json_option
def describe(target: Target, *, names: Sequence[str], as_json: bool) -> None:
    """Show what transactions write to, how old they are, and what they wait for."""
    with connected(target) as client:
        found = known_transactions(client, names)
        producers = _producers(client, found)
    now = now_ms()
    if as_json:
        rows = [_document(one, producers, now) for one in found]
        emit_json({"version": VERSION, "transactions": rows})
        return
    for number, one in enumerate(found):
        if number:
            click.echo("")
        _print(one, producers, now)


def _producers(client: Client, transactions: Sequence[DescribedTransaction]) -> Producers:
    """Of their partitions, as far as these are there and led."""
    places = list(dict.fromkeys(place for one in transactions for place in one.partitions))
    if not places:
        return {}
    client.run(refresh(client.view, sorted({topic for topic, _ in places})))
    led, _ = client.view.by_leader(places)
    there = [place for of_leader in led.values() for place in of_leader]
    return client.run(describe_producers(client.view, there, rounds=_LOOKS))


def _first_offset(
    one: DescribedTransaction, place: TopicPartition, producers: Producers
) -> int | None:
    """Where its records begin there; None where it has written none yet, or nobody tells."""
    return next(
        (
            state.transaction_start
            for state in producers.get(place, ())
            if state.producer_id == one.producer_id
        ),
        None,
    )


def _document(one: DescribedTransaction, producers: Producers, now: WallMs) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started,
        "age_ms": age_ms(one, now),
        "coordinator": one.coordinator,
        "waits_for": _sentence(one, producers, now) if one.is_unended else None,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "first_offset": _first_offset(one, (topic, number), producers),
            }
            for topic, number in sorted(one.partitions)
        ],
    }


def _sentence(one: DescribedTransaction, producers: Producers, now: WallMs) -> str:
    """What it waits for; of one that is over, that it is."""
    unmarked = [
        place
        for place in one.partitions
        if place not in producers or _first_offset(one, place, producers) is not None
    ]
    return f"it {waits_for(one, now, sorted(unmarked))}"


def _print(one: DescribedTransaction, producers: Producers, now: WallMs) -> None:
    started = "-" if one.started is None else moment(one.started)
    age = age_ms(one, now)
    ago = "" if age is None else f", {span(age)} ago"
    rows = [
        ("transaction", f"{escaped(one.transactional_id)}, {one.state}"),
        ("producer", f"{one.producer_id}, epoch {one.producer_epoch}"),
        ("coordinator", f"broker {one.coordinator}"),
        ("started", f"{started}{ago}"),
        ("time-out", f"{one.timeout_ms / 1_000:g} s"),
    ]
    for name, value in rows:
        click.echo(f"{name:<12} {value}")
    click.echo(_sentence(one, producers, now))
    if one.partitions:
        click.echo("")
        places = [
            (topic, number, _first_offset(one, (topic, number), producers))
            for topic, number in sorted(one.partitions)
        ]
        table(places, ("TOPIC", "PARTITION", "FIRST OFFSET"))
