"""`tidelog leader`: have other leaders elected, on any Kafka cluster."""

from collections.abc import Mapping, Sequence

import click

from tidelog.clients.admin.elections import Election, elect_leaders
from tidelog.clients.cluster_view import refresh
from tidelog.kernel.ids import TopicPartition
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_places
from tidelog.tools.output import (
    Group,
    Target,
    bootstrap_options,
    confirm,
    emit_json,
    fail,
    json_option,
    yes_option,
)
from tidelog.wire.errors import ErrorCode

VERSION = 1
_NAMED_MAX = 10
_FINE = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})
_SENTENCES = {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its preferred replica is not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica of it is there",
}


@click.group(
    "leader",
    cls=Group,
    examples=("tidelog leader elect", "tidelog leader elect --unclean orders:3 --yes"),
)
def leader() -> None:
    """Say who leads partitions."""


@leader.command(
    "elect",
    examples=(
        "tidelog leader elect",
        "tidelog leader elect orders audit:0 --json",
        "tidelog leader elect --unclean orders:3 --yes",
    ),
)
@click.argument("places", metavar="[TOPIC[:P]]…", nargs=-1, shell_complete=topic_names)
@click.option("--preferred", is_flag=True, help="The first replica, if in sync: the default.")
@click.option("--unclean", is_flag=True, help="Where nobody leads: any replica that is there.")
@yes_option
@bootstrap_options
@json_option
def elect(
    target: Target,
    places: Sequence[str],
    *,
    preferred: bool,
    unclean: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Elect leaders anew; without a topic, of all partitions that need it.

    An unclean election loses the records that the new leader lacks.
    """
    if preferred and unclean:
        raise click.UsageError("--preferred and --unclean: say one of them")
    with connected(target) as client:
        wanted = known_places(client, places) or None
        if unclean:
            whose = ", ".join(places[:_NAMED_MAX]) or "all partitions without a leader"
            confirm(f"the records of {whose} that the new leaders lack", yes=yes)
        done = client.run(elect_leaders(client.view, wanted, unclean=unclean))
        client.run(refresh(client.view, {one.partition[0] for one in done}))
        leaders = {one.partition: client.view.leader(one.partition) for one in done}
    _tell(done, leaders, as_json=as_json)


def _tell(
    done: Sequence[Election], leaders: Mapping[TopicPartition, int | None], *, as_json: bool
) -> None:
    elected = [one.partition for one in done if one.code is ErrorCode.NONE]
    failed = [one for one in done if one.code not in _FINE]
    if as_json:
        rows = [{"topic": t, "partition": p, "leader": leaders[t, p]} for t, p in elected]
        emit_json({"version": VERSION, "elected": rows})
    elif not elected and not failed:
        click.echo("no election was needed")
    else:
        _print(elected, leaders)
    if failed:
        fail(_why(failed))


def _print(elected: Sequence[TopicPartition], leaders: Mapping[TopicPartition, int | None]) -> None:
    for topic, partition in elected:
        click.echo(f"elected {topic}-{partition}: leader {leaders[topic, partition]}")


def _why(failed: Sequence[Election]) -> str:
    reasons = [
        f"{one.partition[0]}-{one.partition[1]}: {_SENTENCES.get(one.code, one.code.name)}"
        for one in failed[:_NAMED_MAX]
    ]
    more = len(failed) - len(reasons)
    end = f" (and {more} more)" if more else ""
    return f"not elected: {'; '.join(reasons)}{end}; see tidelog topic describe"
