"""`tidelog why group`: what is the matter with a group, why it rebalanced, and who reads what."""

from collections.abc import Sequence

import click

from tidelog.tools.commands.why_words import emit, say
from tidelog.tools.group_reasons import (
    KnownGroup,
    Place,
    age,
    because,
    fine,
    of_group,
    passed,
    who,
)
from tidelog.tools.group_story import Rebalance, Someone
from tidelog.tools.knowing_groups import look
from tidelog.tools.output import (
    Command,
    Target,
    bootstrap_options,
    json_option,
    moment,
    table,
)

_SHOWN = 5
_ONLY_OURS = (
    "why it rebalanced is told by tidelog's own brokers only; its log shows who came and went"
)


@click.command(
    "group",
    cls=Command,
    examples=("tidelog why group billing", "tidelog why group billing --json"),
)
@click.argument("name", metavar="GROUP")
@bootstrap_options
@json_option
def group(target: Target, *, name: str, as_json: bool) -> None:
    """Say why a group rebalanced, whom it waits for, and who does not get on.

    Its rebalances stand in the brokers' logs, whichever of them kept the group: also of a cluster
    that is down. Of another Kafka cluster its protocol tells who has what, and who came and went.
    """
    known = look(target, name)
    reasons = of_group(known)
    well = "" if reasons else fine(known)
    if as_json:
        emit(reasons, well, _facts(known))
        return
    say(reasons, well)
    _show_rebalances(known)
    _show_places(known)
    if known.untold:
        click.echo(f"\nsince when and how long ago is not known: {known.untold}")


# -- for people ---------------------------------------------------------------------------------


def _show_rebalances(known: KnownGroup) -> None:
    if known.rebalances is None:
        click.echo(f"{_ONLY_OURS}\n")
        rows = [
            (moment(one.at_ms), one.number, list(one.came), list(one.went))
            for one in known.generations[-_SHOWN:]
        ]
        table(rows, ("TIME", "GENERATION", "CAME", "WENT"))
        return
    if not known.rebalances:
        click.echo("its brokers' logs tell of no rebalance")
        return
    latest = known.rebalances[-_SHOWN:]
    table([_row(one) for one in latest], _COLUMNS)
    for one in latest:
        gone = ", ".join(one.given_up)
        if gone:
            click.echo(f"generation {one.generation} went on without {gone}")


_COLUMNS = ("TIME", "GENERATION", "WHY", "TOOK", "GATHERING", "LAST", "SHARING", "BROKER")


def _row(one: Rebalance) -> tuple[object, ...]:
    return (
        one.at,
        one.generation,
        because(one),
        _seconds(one.seconds) or one.outcome.value,
        _seconds(one.gathering_s),
        one.gathered_last.name,
        _seconds(one.sharing_s),
        one.broker.rpartition("-")[2],
    )


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f} s"


def _show_places(known: KnownGroup) -> None:
    if not known.places:
        return
    click.echo("")
    rows = [
        (
            place.name,
            None if place.owner is None else who(place.owner),
            None if place.since_ms is None else age(known.now_ms, place.since_ms),
            place.current,
            place.end,
            place.lag,
            None if place.commit_ms is None else age(known.now_ms, place.commit_ms),
        )
        for place in known.places
    ]
    columns = ("PARTITION", "OWNER", "FOR", "CURRENT", "END", "LAG", "COMMITTED BEFORE")
    table(rows, columns)


# -- for programs -------------------------------------------------------------------------------


def _facts(known: KnownGroup) -> dict[str, object]:
    group = known.group
    return {
        "group": known.name,
        "type": None if group is None else group.kind,
        "state": None if group is None else group.state,
        "coordinator": None if group is None else group.coordinator,
        "generation": known.generation,
        "member_count": 0 if group is None else len(group.members),
        "rebalances": _rebalances(known.rebalances),
        "generations": [
            {
                "generation": one.number,
                "at": moment(one.at_ms),
                "came": list(one.came),
                "went": list(one.went),
            }
            for one in known.generations
        ],
        "partitions": [_partition(known, place) for place in known.places],
        "untold": known.untold or None,
    }


def _rebalances(rebalances: Sequence[Rebalance] | None) -> list[dict[str, object]] | None:
    if rebalances is None:
        return None
    return [
        {
            "at": one.at,
            "broker": one.broker,
            "generation": one.generation,
            "trigger": one.trigger,
            "sentence": f"{because(one)}; it {passed(one)}",
            **_person(one.member),
            "reason": one.reason or None,
            "detail": one.detail or None,
            "outcome": one.outcome.value,
            "seconds": _rounded(one.seconds),
            "phases": {
                "gathering_s": _rounded(one.gathering_s),
                "sharing_s": _rounded(one.sharing_s),
            },
            "last": None if one.gathered_at is None else _person(one.gathered_last),
            "last_to_share": None if one.ended_at is None else _person(one.ended_last),
            "members": one.members if one.gathered_members is None else one.gathered_members,
            "given_up": one.given_up,
            "waits_for": one.waits_for,
            "untold_before": one.untold,
        }
        for one in rebalances
    ]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _person(one: Someone) -> dict[str, object]:
    return {
        "member_id": one.member_id or None,
        "client_id": one.client_id or None,
        "host": one.host or None,
    }


def _partition(known: KnownGroup, place: Place) -> dict[str, object]:
    owner = place.owner
    return {
        "topic": place.topic,
        "partition": place.partition,
        "owner": None if owner is None else owner.member_id,
        "client_id": None if owner is None else owner.client_id,
        "host": None if owner is None else owner.host,
        "owned_since": None if place.since_ms is None else moment(place.since_ms),
        "current": place.current,
        "end": place.end,
        "lag": place.lag,
        "committed_at": None if place.commit_ms is None else moment(place.commit_ms),
        "commit_age_s": None
        if place.commit_ms is None
        else max(known.now_ms - place.commit_ms, 0) / 1000,
    }
