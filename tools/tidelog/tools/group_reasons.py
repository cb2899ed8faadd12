"""Why a group rebalanced, waits, or does not get on, in sentences, and what to do. No I/O.

What is known comes as values: the group as its coordinator describes it, the story that brokers
told, and what its log says of each partition. The first reason is the one that hurts most.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidelog.clients.admin.groups import STABLE, DescribedGroup, GroupMember
from tidelog.node.groups.history import Trigger
from tidelog.tools.group_log import Generation
from tidelog.tools.group_story import Outcome, Rebalance, member_name
from tidelog.tools.output import counted, listed, moment
from tidelog.tools.reasons import DOWN, Code, Reason

RESTLESS_S: Final = 300
RESTLESS_COUNT: Final = 6
"""So many rebalances in so long, besides those that members began by coming."""
STUCK_S: Final = 60
"""So old is the commit of who does not get on."""
_NAMED_MAX: Final = 3


class Place(Struct, frozen=True):
    """How far the group is in one partition, and who reads it."""

    topic: str
    partition: int
    owner: GroupMember | None
    since_ms: int | None
    current: int | None
    end: int | None
    commit_ms: int | None

    @property
    def lag(self) -> int | None:
        known = self.current is not None and self.end is not None
        return max((self.end or 0) - (self.current or 0), 0) if known else None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class KnownGroup(Struct, frozen=True):
    """All that the sentences are made of."""

    name: str
    now_ms: int
    group: DescribedGroup | None
    """None where its coordinator cannot be asked."""
    generation: int | None
    """The latest one, or the epoch."""
    places: Sequence[Place]
    rebalances: Sequence[Rebalance] | None
    """None of a cluster whose brokers tell no stories."""
    generations: Sequence[Generation] = ()
    is_down: bool = False
    untold: str = ""
    """What could not be found out, and why."""


# -- why it rebalanced --------------------------------------------------------------------------

_SENTENCES: Final[Mapping[str, str]] = {
    Trigger.JOIN: "{who} joined",
    Trigger.LEAVE: "{who} left",
    Trigger.SESSION_TIMEOUT: "{who} was silent for its session time-out",
    Trigger.REBALANCE_TIMEOUT: "{who} kept the others waiting for its rebalance time-out",
    Trigger.SUBSCRIPTION: "{who} changed its subscription",
    Trigger.GIVEN_UP: "{who} gave up what others shall have",
    Trigger.LEADER: "{who}, which shares out the partitions, asked for it",
    Trigger.STATIC: "{who} took the place of a static member, with other protocols",
    Trigger.DISCONNECT: "the connection of {who} ended",
    Trigger.MOVED: "the group's coordinator moved in the middle of a rebalance",
}
_TOPICS: Final = frozenset({Trigger.GROWTH, Trigger.TOPIC, Trigger.TOPIC_GONE})
assert _SENTENCES.keys() | _TOPICS == set(Trigger)


def because(rebalance: Rebalance) -> str:
    """Why it began."""
    who, detail = rebalance.member.name or "a member", rebalance.detail
    if rebalance.trigger in _TOPICS:
        said = detail or "topics that it reads came, grew or went"
        noticed = f", as {rebalance.member.name} saw" if rebalance.member.name else ""
        said = f"{said}{noticed}"
    else:
        said = _SENTENCES.get(rebalance.trigger, "{who}: " + rebalance.trigger).format(who=who)
        said += f": {detail}" if detail else ""
    return f"{said} ({rebalance.reason})" if rebalance.reason else said


def passed(rebalance: Rebalance) -> str:
    """How long it took and what took it."""
    if rebalance.seconds is not None:
        return f"took {rebalance.seconds:.2f} s"
    match rebalance.outcome:
        case Outcome.OVERTAKEN:
            return "was overtaken by the next one"
        case Outcome.MOVED:
            return f"was not through when its coordinator, {_broker(rebalance)}, was gone"
        case _:
            return "is under way"


def _broker(rebalance: Rebalance) -> str:
    return rebalance.broker.replace("-", " ")


# -- what is the matter -------------------------------------------------------------------------


def of_group(known: KnownGroup) -> list[Reason]:
    """What is the matter with it, the worst first; nothing where it is well."""
    if known.is_down:
        return [DOWN]
    group = known.group
    if group is None:
        return [Reason(Code.NO_COORDINATOR, f"the coordinator of {known.name} does not answer")]
    if not group.members:
        return [_nobody(known)]
    found = []
    if group.state != STABLE:
        found.append(_rebalances(known, group))
    restless = _restless(known)
    if restless is not None:
        found.append(restless)
    return [*found, *_stuck(known)]


def _nobody(known: KnownGroup) -> Reason:
    why = ""
    if known.rebalances:
        latest = known.rebalances[-1]
        why = f": {because(latest)} at {latest.at}"
    elif known.generations and known.generations[-1].went:
        gone = known.generations[-1]
        why = f": {', '.join(gone.went)} went at {moment(gone.at_ms)}"
    waiting = sum(place.lag or 0 for place in known.places)
    left = f"; {counted(waiting, 'record')} wait" if waiting else ""
    return Reason(Code.NO_MEMBERS, f"{known.name} has no members{why}{left}")


def _rebalances(known: KnownGroup, group: DescribedGroup) -> Reason:
    latest = known.rebalances[-1] if known.rebalances else None
    members = counted(len(group.members), "member")
    if latest is None or latest.outcome is not Outcome.OPEN:
        sentence = f"{known.name} is {group.state}, with {members}{_behind(group)}"
        return Reason(Code.REBALANCING, sentence)
    since = f"{known.name} rebalances since {latest.at}: {because(latest)}"
    waits = f"; it waits for {_waits(latest)}" if latest.waits_for else _behind(group)
    return Reason(Code.REBALANCING, f"{since}{waits}")


def _waits(rebalance: Rebalance) -> str:
    more = rebalance.waits_count - len(rebalance.waits_for)
    return listed(rebalance.waits_for) + (f" and {more} more" if more > 0 else "")


def _behind(group: DescribedGroup) -> str:
    """Members of the consumer protocol that have not come to its epoch, or have not got all."""
    late = [
        one
        for one in group.members
        if one.target is not None
        and ((one.epoch or 0) < (group.epoch or 0) or _pairs(one.assigned) != _pairs(one.target))
    ]
    if not late:
        return ""
    names = [who(one) for one in late[:_NAMED_MAX]]
    more = len(late) - len(names)
    return f"; it waits for {listed(names)}" + (f" and {more} more" if more else "")


def _pairs(given: Mapping[str, Sequence[int]]) -> set[tuple[str, int]]:
    return {(topic, one) for topic, partitions in given.items() for one in partitions}


def _restless(known: KnownGroup) -> Reason | None:
    """It rebalances again and again: whom that is most often because of."""
    recent = [
        one
        for one in known.rebalances or ()
        if one.trigger != Trigger.JOIN and _age_s(known, one.at) <= RESTLESS_S
    ]
    times = len(recent) + sum(one.untold for one in recent)
    if times < RESTLESS_COUNT:
        return None
    names = [one.member.name for one in recent]
    most = max(names, key=names.count)
    often = f", most often for {most}" if most and names.count(most) > 1 else ""
    minutes = RESTLESS_S // 60
    sentence = f"{known.name} rebalanced {times} times in {minutes} minutes{often}"
    return Reason(Code.RESTLESS, f"{sentence}; the last time, {because(recent[-1])}")


def _age_s(known: KnownGroup, at: str) -> float:
    return known.now_ms / 1000 - datetime.fromisoformat(at).timestamp()


def _stuck(known: KnownGroup) -> list[Reason]:
    found = [said for place in known.places if (said := _waits_in(known, place))]
    more = len(found) - _NAMED_MAX
    reasons = [Reason(Code.STUCK, sentence) for sentence in found[:_NAMED_MAX]]
    if more > 0:
        reasons.append(Reason(Code.STUCK, f"so it is with {counted(more, 'more partition')}"))
    return reasons


def _waits_in(known: KnownGroup, place: Place) -> str:
    """Who has committed nothing for long though there is something; or nothing."""
    moments = [one for one in (place.commit_ms, place.since_ms) if one is not None]
    is_due = bool(moments) and known.now_ms - max(moments) >= STUCK_S * 1000
    if not place.lag or not is_due:
        return ""
    verb = "waits" if place.lag == 1 else "wait"
    waits = f"{counted(place.lag, 'record')} of {place.name} {verb}"
    if place.owner is None:
        return f"{waits}, and nobody reads it"
    ago = age(known.now_ms, max(moments))
    return f"{waits}, and {who(place.owner)} has committed nothing for {ago}"


def fine(known: KnownGroup) -> str:
    """What to say of a group that is well."""
    group = known.group
    assert group is not None
    number = f"{'epoch' if group.epoch is not None else 'generation'} {known.generation}"
    generation = "" if known.generation is None else f"{number}, "
    sentence = f"{known.name} is stable: {generation}{counted(len(group.members), 'member')}"
    if not known.rebalances:
        return sentence
    latest = known.rebalances[-1]
    return f"{sentence}; its last rebalance {passed(latest)}: {because(latest)}"


# -- words --------------------------------------------------------------------------------------


def who(member: GroupMember) -> str:
    return member_name(member.client_id, member.host)


def age(now_ms: int, then_ms: int) -> str:
    """How long ago, for people.

    >>> age(10_500, 0), age(240_000, 0), age(7_200_000, 0), age(3 * 86_400_000, 0)
    ('10.5 s', '4 min', '2 h', '3 days')
    """
    seconds = max(now_ms - then_ms, 0) / 1000
    for limit, unit, noun in ((60, 1, ""), (3_600, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // unit:.0f} {noun}" if noun else f"{seconds:.1f} s"
    return f"{seconds // 86_400:.0f} days"
