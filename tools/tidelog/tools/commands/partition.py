"""`tidelog partition`: move replicas to other brokers, on any Kafka cluster."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.clients.admin.describe import replica_sizes
from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.reassignments import (
    Ongoing,
    Reassigned,
    alter_reassignments,
    list_reassignments,
)
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools import plan_form, throttles
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import check_partition, connected, known_places, known_topics
from tidelog.tools.output import (
    NOT_FOUND,
    UNREACHABLE,
    Group,
    Target,
    bootstrap_options,
    counted,
    emit_json,
    fail,
    json_option,
    note,
    progress_bar,
    size,
    table,
)
from tidelog.tools.replanning import TooFewError, proposed
from tidelog.wire.errors import ErrorCode

VERSION = 1
_LOOK_EVERY_S = 0.1
_NAMED_MAX = 10

Targets = Mapping[TopicPartition, Sequence[int]]
Row = dict[str, Any]
"""One partition, as programs are told of it."""


@click.group(
    "partition",
    cls=Group,
    examples=("tidelog partition reassign plan", "tidelog partition reassign status"),
)
def partition() -> None:
    """Move replicas to other brokers."""


@partition.group(
    "reassign",
    cls=Group,
    examples=(
        "tidelog partition reassign plan --brokers 0,1,3 > plan.json",
        "tidelog partition reassign apply plan.json --throttle 10000000",
        "tidelog partition reassign status",
    ),
)
def reassign() -> None:
    """Plan which brokers have which replicas, move them, follow that, or call it off."""


plan_option = click.option(
    "--plan", "plan_file", metavar="FILE", help="The partitions that this plan names."
)
keep_option = click.option(
    "--preserve-throttles", is_flag=True, help="Leave the throttle when nothing moves any more."
)


# -- plan ---------------------------------------------------------------------------------------


def _numbers(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> list[int]:
    """`0,1,2`."""
    words = [] if text is None else text.split(",")
    if any(not (one.isascii() and one.isdecimal()) for one in words):
        raise click.UsageError(f"--brokers {text!r}: must be ids of brokers, as in 0,1,2")
    return sorted(set(map(int, words)))


@reassign.command(
    "plan",
    examples=(
        "tidelog partition reassign plan --brokers 0,1,3 --topics orders,audit > plan.json",
        "tidelog partition reassign plan --topics orders --replication-factor 3 > plan.json",
        "tidelog partition reassign plan | tidelog partition reassign apply -",
    ),
)
@click.option("--topics", metavar="NAME,…", help="Default: all of them.")
@click.option("--brokers", metavar="ID,…", callback=_numbers, help="Default: all that are there.")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32767), help="Default: as many as there are."
)
@click.option("--disable-rack-aware", is_flag=True, help="Whatever racks the brokers are in.")
@bootstrap_options
@json_option
def plan(
    target: Target,
    topics: str | None,
    brokers: list[int],
    replication_factor: int | None,
    *,
    disable_rack_aware: bool,
    as_json: bool,
) -> None:
    """Propose which replicas partitions should have on these brokers, and move little.

    Prints a plan in the form of Kafka's tool, of those partitions alone that change. A replica
    stays unless its broker is not among them or has more than its share.
    """
    assert as_json in {True, False}  # a plan is JSON in any case
    with connected(target) as client:
        names = None if topics is None else [one for one in topics.split(",") if one]
        current = _current(client, names)
        chosen = brokers or sorted(client.view.brokers)
        _check_brokers(client, chosen)
        racks = {} if disable_rack_aware else _racks(client, chosen)
    try:
        targets = proposed(current, chosen, racks, replication_factor)
    except TooFewError as few:
        fail(
            f"{name_of(few.partition)} shall have {few.replicas} replicas on "
            f"{counted(len(chosen), 'broker')}: name more, or give --replication-factor"
        )
    emit_json(plan_form.document(targets))
    moved = sum(len(set(now) - set(current[place])) for place, now in targets.items())
    copied = counted(moved, "replica")
    note(f"{counted(len(targets), 'partition')} would change, {copied} would be copied")


def _current(client: Client, names: Sequence[str] | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition, as they are or will be when what is under way is over."""
    if names is None:
        client.run(refresh(client.view, None))
        names = list(client.view.topics)
    else:
        known_topics(client, names)
    ongoing = client.run(list_reassignments(client.view))
    return {
        place: ongoing[place].target if place in ongoing else view.replicas
        for name in names
        for number, view in client.view.topics[name].partitions.items()
        for place in [(name, Partition(number))]
    }


def _check_brokers(client: Client, brokers: Iterable[int]) -> None:
    """The command ends where one of them is not there, for it could copy nothing."""
    for one in brokers:
        if one not in client.view.brokers:
            there = ", ".join(map(str, sorted(client.view.brokers)))
            fail(f"there is no broker {one}: those that are there are {there}", NOT_FOUND)


def _racks(client: Client, brokers: Sequence[int]) -> dict[int, str]:
    """All of them have one or none, as for Kafka's tool, or the user says that none matters."""
    racks = {one: client.view.racks[one] for one in brokers if one in client.view.racks}
    if racks and len(racks) < len(brokers):
        without = ", ".join(str(one) for one in brokers if one not in racks)
        fail(
            f"not all brokers have a rack, {without} has none: set broker.rack for all of them, or "
            "add --disable-rack-aware"
        )
    return racks


# -- apply --------------------------------------------------------------------------------------


@reassign.command(
    "apply",
    examples=(
        "tidelog partition reassign apply plan.json",
        "tidelog partition reassign apply plan.json --throttle 10000000 --wait",
        "tidelog partition reassign plan | tidelog partition reassign apply - --json",
    ),
)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--throttle",
    "rate",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Move at most so much a second from each broker, and to each.",
)
@click.option("--wait", is_flag=True, help="Return when it is done, without the throttle.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=3_600.0,
    show_default=True,
    metavar="S",
    help="With --wait: how long.",
)
@bootstrap_options
@json_option
def apply(
    target: Target,
    file: str,
    rate: int | None,
    *,
    wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Begin to move replicas as a plan says, in the form of Kafka's tool.

    Returns when the cluster has taken it. A throttle stays until `status` finds that nothing moves
    any more, `cancel` calls it off, or --wait sees the end.
    """
    targets = _read(file)
    with connected(target) as client:
        before, wanted = _begun(client, targets, rate)
        done = client.run(alter_reassignments(client.view, wanted)) if wanted else []
        taken = _taken(done)
        if wait:
            _wait(client, {place: targets[place] for place in taken}, timeout)
        if rate is not None and (wait or not taken):
            _release(client)
    rows = [_row(place) | {"from": before[place], "to": tuple(targets[place])} for place in taken]
    _tell("moved" if wait else "moving", rows, "nothing to move", as_json=as_json)
    _fail_for(done, "moved")


def _tell(word: str, rows: Sequence[Row], nothing: str, *, as_json: bool) -> None:
    if as_json:
        emit_json({"version": VERSION, word: rows})
        return
    for row in rows:
        now = _listed(row["to"])
        move = f"replicas {now}" if word == "cancelled" else f"{_listed(row['from'])} -> {now}"
        click.echo(f"{word} {row['topic']}-{row['partition']}: {move}")
    if not rows:
        click.echo(nothing)


def _taken(done: Sequence[Reassigned]) -> list[TopicPartition]:
    return [one.partition for one in done if one.code is ErrorCode.NONE]


def _begun(
    client: Client, targets: Targets, rate: int | None
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, Sequence[int]]]:
    """What partitions have now, and what is to be asked for: the throttle is in force."""
    ongoing = _check_plan(client, targets)
    before = {
        (name, number): client.view.topics[name].partitions[number].replicas
        for name, number in targets
    }
    wanted = {
        place: replicas
        for place, replicas in targets.items()
        if place in ongoing or before[place] != tuple(replicas)
    }
    if rate is not None and wanted:
        throttles.throttle(client, throttles.moves(before, ongoing, wanted), rate)
    return before, wanted


def _release(client: Client) -> bool:
    """Take the throttle away if nothing moves; whether there was one."""
    if client.run(list_reassignments(client.view)):
        return False
    client.run(refresh(client.view, None))
    return throttles.release(client)


def _read(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", NOT_FOUND)
    except UnicodeDecodeError:
        fail(f"{file} is no plan: it is no text")
    try:
        return plan_form.read(text)
    except plan_form.PlanError as error:
        fail(f"{'standard input' if file == '-' else file} is no plan: {error}")


def _check_plan(client: Client, targets: Targets) -> dict[TopicPartition, Ongoing]:
    """The command ends where the plan names what is not there; what is under way now."""
    topics = {one.name: one for one in known_topics(client, {name for name, _ in targets})}
    for name, number in targets:
        check_partition(topics[name], number)
    _check_brokers(client, {one for replicas in targets.values() for one in replicas})
    return client.run(list_reassignments(client.view))


def _wait(client: Client, targets: Targets, timeout_s: float) -> None:
    """Until none of them is under way; the command ends where one came out otherwise."""
    deadline = time.monotonic() + timeout_s
    with progress_bar("moving", len(targets)) as step:
        left = set(targets)
        while left:
            now = left & client.run(list_reassignments(client.view, targets)).keys()
            if step is not None:
                step(len(left) - len(now))
            left = now
            if left and time.monotonic() >= deadline:
                many = counted(len(left), "partition")
                fail(
                    f"{many} still move: see tidelog partition reassign status, or wait longer "
                    "with --timeout",
                    UNREACHABLE,
                )
            if left:
                time.sleep(_LOOK_EVERY_S)
    client.run(refresh(client.view, {name for name, _ in targets}))
    for (name, number), replicas in targets.items():
        found = client.view.topics[name].partitions[number].replicas
        if set(found) != set(replicas):
            fail(
                f"{name}-{number} has replicas {_listed(found)}, not {_listed(replicas)}: somebody "
                "else moved it or called it off"
            )


def _fail_for(done: Sequence[Reassigned], word: str) -> None:
    """The command ends here where the cluster refused any."""
    failed = [one for one in done if one.code is not ErrorCode.NONE]
    if not failed:
        return
    reasons = [
        f"{name_of(one.partition)}: {one.detail.rstrip('.') or one.code.name}"
        for one in failed[:_NAMED_MAX]
    ]
    more = f" (and {len(failed) - _NAMED_MAX} more)" if len(failed) > _NAMED_MAX else ""
    fail(f"not {word}: {'; '.join(reasons)}{more}")


# -- status -------------------------------------------------------------------------------------

COLUMNS = ("TOPIC", "PARTITION", "STATE", "REPLICAS", "ADDING", "REMOVING", "COPIED")


@reassign.command(
    "status",
    examples=(
        "tidelog partition reassign status",
        "tidelog partition reassign status orders audit:0 --json",
        "tidelog partition reassign status --plan plan.json",
    ),
)
@click.argument("places", metavar="[TOPIC[:P]]…", nargs=-1, shell_complete=topic_names)
@plan_option
@keep_option
@bootstrap_options
@json_option
def status(
    target: Target,
    places: Sequence[str],
    plan_file: str | None,
    *,
    preserve_throttles: bool,
    as_json: bool,
) -> None:
    """Show what moves and how far it is; with a plan, whether each partition is as planned.

    When nothing moves any more the throttle is taken away. Exits 1 where a partition does not move
    and is not as planned.
    """
    targets = {} if plan_file is None else _read(plan_file)
    with connected(target) as client:
        named = known_places(client, places)
        ongoing = client.run(list_reassignments(client.view))
        shown = list(targets or named or ongoing)
        client.run(refresh(client.view, {name for name, _ in shown}))
        moving = [one for one in shown if one in ongoing]
        sizes = client.run(replica_sizes(client.view, moving))
        rows = [_status(client, place, ongoing.get(place), targets, sizes) for place in shown]
        rate = throttles.current_rate(client)
        released = rate is not None and not preserve_throttles and _release(client)
    if as_json:
        document = {"version": VERSION, "throttle": None if released else rate}
        emit_json(document | {"reassignments": rows})
    else:
        _show(rows, rate, released=released)
    _fail_where_different(rows)


def _fail_where_different(rows: Iterable[Row]) -> None:
    different = sum(row["state"] == "different" for row in rows)
    if different:
        fail(f"{counted(different, 'partition')} not as planned, and nothing moves there")


Sizes = Mapping[tuple[TopicPartition, int], int]


def _status(
    client: Client,
    place: TopicPartition,
    move: Ongoing | None,
    targets: Targets,
    sizes: Sizes,
) -> Row:
    """One partition; "different" is what does not move and is not as planned."""
    if move is not None:
        facts = _moving(client, place, move, sizes)
    else:
        view = client.view.topics.get(place[0])
        known = None if view is None else view.partitions.get(place[1])
        replicas = () if known is None else known.replicas
        done = set(targets.get(place, replicas)) == set(replicas)
        facts = _still("done" if done else "different", replicas)
    return _row(place) | facts


def _still(state: str, replicas: Sequence[int]) -> Row:
    empty: Row = {"adding": (), "removing": (), "copied_bytes": None, "total_bytes": None}
    return {"state": state, "replicas": replicas} | empty


def _moving(client: Client, place: TopicPartition, move: Ongoing, sizes: Sizes) -> Row:
    of_leader = sizes.get((place, client.view.leader(place) or 0))
    counting = of_leader is not None and bool(move.adding)
    return {
        "state": "moving",
        "replicas": move.replicas,
        "adding": move.adding,
        "removing": move.removing,
        "copied_bytes": sum(sizes.get((place, one), 0) for one in move.adding),
        "total_bytes": of_leader * len(move.adding) if of_leader and counting else None,
    }


def _show(rows: Sequence[Row], rate: int | None, *, released: bool) -> None:
    if rows:
        table([_cells(row) for row in rows], COLUMNS)
    else:
        click.echo("nothing moves")
    if released:
        click.echo("throttle taken away")
    elif rate is not None:
        click.echo(f"throttle: {size(rate)} a second")


def _cells(row: Row) -> tuple[object, ...]:
    copied, total = row["copied_bytes"], row["total_bytes"]
    far = None
    if isinstance(copied, int) and isinstance(total, int):
        # A copy may be larger for a moment: what retention took away at the leader.
        percent = 100 if copied >= total else 100 * copied // total
        far = f"{size(copied)} of {size(total)} ({percent} %)"
    names = ("topic", "partition", "state", "replicas", "adding", "removing")
    return (*(row[name] for name in names), far)


# -- cancel -------------------------------------------------------------------------------------


@reassign.command(
    "cancel",
    examples=(
        "tidelog partition reassign cancel",
        "tidelog partition reassign cancel orders audit:0",
        "tidelog partition reassign cancel --plan plan.json --json",
    ),
)
@click.argument("places", metavar="[TOPIC[:P]]…", nargs=-1, shell_complete=topic_names)
@plan_option
@keep_option
@bootstrap_options
@json_option
def cancel(
    target: Target,
    places: Sequence[str],
    plan_file: str | None,
    *,
    preserve_throttles: bool,
    as_json: bool,
) -> None:
    """Call off what moves, all of it or what is named: partitions keep the replicas they had."""
    planned = None if plan_file is None else _read(plan_file)
    with connected(target) as client:
        ongoing = client.run(list_reassignments(client.view))
        named = {*(planned or ()), *known_places(client, places)}
        everything = planned is None and not places
        nobody = {one: None for one in ongoing if everything or one in named}
        done = client.run(alter_reassignments(client.view, nobody)) if nobody else []
        if not preserve_throttles:
            _release(client)
    rows = [_row(one) | {"to": _original(ongoing[one])} for one in _taken(done)]
    _tell("cancelled", rows, "nothing to cancel", as_json=as_json)
    _fail_for(done, "cancelled")


def _original(move: Ongoing) -> list[int]:
    """What a partition had before it was to move."""
    return [one for one in move.replicas if one not in move.adding]


# -- words --------------------------------------------------------------------------------------


def _row(place: TopicPartition) -> Row:
    return {"topic": place[0], "partition": place[1]}


def _listed(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))
