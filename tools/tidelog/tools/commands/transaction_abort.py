"""`tidelog txn abort`: end a transaction whose producer does not, or one that nobody will end."""

import re

import click

from tidelog.clients.admin.fencing import fence_producers
from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.open_transactions import Openings, OpenTransaction, open_transactions
from tidelog.clients.admin.producers import OpenHere, abort_open
from tidelog.clients.admin.transactions import DECIDED, DescribedTransaction, State
from tidelog.clients.client import Client
from tidelog.tools.connecting import connected, known_places
from tidelog.tools.output import (
    NOT_FOUND,
    UNREACHABLE,
    CliError,
    Command,
    Target,
    bootstrap_options,
    confirm,
    emit_json,
    fail,
    json_option,
    yes_option,
)
from tidelog.tools.transaction_look import ends_of, known_transactions, now_ms
from tidelog.tools.transaction_reasons import abort_all, look_at_it, waits_for, whose

VERSION = 1
_PLACE = re.compile(r".+:[0-9]+")


@click.command(
    "abort",
    cls=Command,
    examples=(
        "tidelog txn abort billing-1",
        "tidelog txn abort orders:0 --start-offset 1200",
        "tidelog txn abort orders:0 --producer-id 4001 --yes",
    ),
)
@click.argument("what", metavar="ID|TOPIC:P")
@click.option(
    "--start-offset",
    metavar="N",
    type=click.IntRange(0),
    help="In a partition: the transaction that begins here.",
)
@click.option(
    "--producer-id",
    metavar="N",
    type=click.IntRange(0),
    help="In a partition: the open transaction of this producer.",
)
@click.option(
    "--force", is_flag=True, help="In a partition: also what a coordinator will end by itself."
)
@yes_option
@bootstrap_options
@json_option
def abort(  # noqa: PLR0913 -- the options of the command
    target: Target,
    *,
    what: str,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Abort a transaction: by its id, or one that hangs in a partition.

    By its id the coordinator aborts it everywhere, and its producer is fenced. In a partition an
    abort marker is written there alone, which is right only for what no coordinator will end:
    `tidelog txn hanging` finds those.
    """
    with connected(target) as client:
        if start_offset is None and producer_id is None:
            if force:
                needs = "--start-offset or --producer-id"
                raise click.UsageError(f"--force is for a partition, with {needs}")
            _by_id(client, target, what, yes=yes, as_json=as_json)
            return
        one = _named(client, what, start_offset, producer_id)
        if not one.hangs and not force:
            fail(_torn(one, target))
        place = f"{name_of(one.partition)} from offset {one.start}"
        confirm(f"{whose(one)} in {place}", yes=yes, verb="abort")
        _in_partition(client, one, as_json=as_json)


# -- by its id ----------------------------------------------------------------------------------


def _by_id(client: Client, target: Target, name: str, *, yes: bool, as_json: bool) -> None:
    known = _known(client, name)
    _check(known, target)
    where = f" in {_places(known)}" if known.partitions else ""
    confirm(f"transaction {name!r}{where}, whose producer is fenced", yes=yes, verb="abort")
    identity = client.run(fence_producers(client.view, [name]))[name]
    if as_json:
        places = [{"topic": topic, "partition": at} for topic, at in sorted(known.partitions)]
        emit_json(
            {
                "version": VERSION,
                "transactional_id": name,
                "fenced": {
                    "producer_id": known.producer_id,
                    "producer_epoch": known.producer_epoch,
                },
                "next": {
                    "producer_id": identity.producer_id,
                    "producer_epoch": identity.epoch,
                },
                "partitions": places,
            }
        )
        return
    fenced = f"producer {known.producer_id}, epoch {known.producer_epoch} is fenced"
    click.echo(f"aborted transaction {name!r}{where}: {fenced}")


def _known(client: Client, name: str) -> DescribedTransaction:
    try:
        (known,) = known_transactions(client, [name])
    except CliError:
        if not _PLACE.fullmatch(name):
            raise
        fail(
            f"there is no transactional id {name!r}: to abort a transaction in a partition, add "
            "--start-offset or --producer-id",
            NOT_FOUND,
        )
    return known


def _check(known: DescribedTransaction, target: Target) -> None:
    """The command ends where there is nothing to abort, or no way back."""
    it = f"transaction {known.transactional_id!r} {waits_for(known, now_ms())}"
    if not known.is_unended:
        fail(f"nothing is aborted: {it}")
    if known.state == State.PREPARE_COMMIT:
        fail(f"nothing is aborted: {it}; see {look_at_it(known, target.words)}")


def _places(known: DescribedTransaction) -> str:
    return ", ".join(name_of(one) for one in sorted(known.partitions))


# -- in one partition ---------------------------------------------------------------------------


def _named(
    client: Client, what: str, start_offset: int | None, producer_id: int | None
) -> OpenTransaction:
    """The one that is meant; the command ends where it is not open."""
    if ":" not in what:
        raise click.UsageError(f"{what!r}: must be TOPIC:PARTITION with these options")
    (partition,) = known_places(client, [what])
    seen = client.run(open_transactions(client.view, now_ms(), [partition]))
    if seen.unseen:
        name = name_of(partition)
        fail(f"the leader of {name} does not answer: see tidelog topic describe", UNREACHABLE)
    meant = [
        one
        for one in seen.found
        if start_offset in {None, one.start} and producer_id in {None, one.producer.producer_id}
    ]
    if not meant:
        begin = "" if start_offset is None else f" from offset {start_offset}"
        of_whom = "" if producer_id is None else f" of producer {producer_id}"
        where = f"{begin}{of_whom} is open in {name_of(partition)}"
        fail(f"no transaction{where}: {_there(seen)}", NOT_FOUND)
    return meant[0]


def _there(seen: Openings) -> str:
    words = [f"{one.start} (producer {one.producer.producer_id})" for one in seen.found]
    return f"what is open there begins at {', '.join(words)}" if words else "nothing is"


def _torn(one: OpenTransaction, target: Target) -> str:
    """Why not: its other partitions would come to another end."""
    known = one.transaction
    assert known is not None
    alone = f"--force aborts it in {name_of(one.partition)} alone"
    if known.state in DECIDED:
        see = look_at_it(known, target.words)
        return f"{whose(one)} {waits_for(known, now_ms(), [one.partition])}: see {see}; {alone}"
    whole = abort_all(known, target.words)
    return f"{whose(one)} is one that its coordinator can end as a whole: {whole}; {alone}"


def _in_partition(client: Client, one: OpenTransaction, *, as_json: bool) -> None:
    producer = one.producer
    here = OpenHere(one.partition, one.start, producer.producer_id)
    ended = client.run(abort_open(client.view, here))
    name = name_of(one.partition)
    if ended is None:
        fail(f"nothing is aborted in {name}: {whose(one)} ended by itself just now")
    ends = ends_of(client, [one.partition]).get(one.partition)
    if as_json:
        emit_json(
            {
                "version": VERSION,
                "topic": one.partition[0],
                "partition": one.partition[1],
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "start_offset": one.start,
                "stable_offset": None if ends is None else ends.stable,
                "end_offset": None if ends is None else ends.end,
            }
        )
        return
    click.echo(f"aborted {whose(one)} in {name} from offset {one.start}")
    if ends is not None:
        click.echo(f"readers of committed records get to offset {ends.stable} of {ends.end}")
