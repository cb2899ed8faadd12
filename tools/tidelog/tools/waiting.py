"""What `tidelog wait` waits for on any Kafka cluster, by asking it again and again."""

import time
from collections.abc import Mapping, Sequence

from tidelog.clients.admin.groups import STABLE, DescribedGroup, describe_group
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import ClusterView, TopicView, refresh, told_by
from tidelog.clients.failures import TimedOutError
from tidelog.kernel.instant import s
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import UNREACHABLE, CliError, Target, counted, fail

_TRY_EVERY_S = 0.05
_ANSWER_S = 5.0
"""So long a broker may take to answer, also where no more time is left to wait."""


def until_reachable(target: Target, deadline: float) -> list[int]:
    """The brokers, once the cluster answers and knows its controller."""
    because = "it does not answer"
    while True:
        try:
            with connected(target) as client:
                left_s = max(deadline - time.monotonic(), _TRY_EVERY_S)
                client.run(refresh(client.view, ()), round(s(1) * left_s))
                if _has_controller(client.view):
                    return sorted(client.view.brokers)
                because = "it has no controller"
        except CliError as error:
            if error.code != UNREACHABLE:
                raise
            because = error.message
        if time.monotonic() >= deadline:
            fail(f"{target.bootstrap} is not ready: {because}", UNREACHABLE)
        time.sleep(_TRY_EVERY_S)


def _has_controller(view: ClusterView) -> bool:
    return bool(view.brokers) and view.controller_id >= 0


def until_in_sync(target: Target, names: Sequence[str], timeout_s: float) -> dict[str, int]:
    """The number of partitions of each topic, once by every broker's word all are led and in sync.

    One broker hears of a change before another: who has just stopped a broker, or made a topic,
    may ask one that has not heard of it.
    """
    deadline = time.monotonic() + timeout_s
    with connected(target) as client:
        while True:
            told = _told(client, names, deadline)
            if not any(one is not None and one.topics.keys() >= {*names} for one in told.values()):
                known_topics(client, names)  # it says what is wrong with which name
            late = late_by_any(told, names)
            if late is None:
                return {name: client.view.partition_count(name) for name in names}
            _pause_before(deadline, late)


def until_all_in_sync(target: Target, timeout_s: float) -> None:
    """Every partition of every topic is led and in sync, by every broker's word."""
    deadline = time.monotonic() + timeout_s
    with connected(target) as client:
        while late := late_by_any(_told(client, None, deadline), ()):
            _pause_before(deadline, late)


def _pause_before(deadline: float, late: str) -> None:
    if time.monotonic() >= deadline:
        fail(f"{late}: see tidelog topic describe", UNREACHABLE)
    time.sleep(_TRY_EVERY_S)


def _told(
    client: Client, names: Sequence[str] | None, deadline: float
) -> dict[int, ClusterView | None]:
    """What each broker that the cluster names says of topics; None of one that does not answer."""
    client.run(refresh(client.view, names))
    told: dict[int, ClusterView | None] = {}
    for broker in sorted(client.view.brokers):
        left_s = max(deadline - time.monotonic(), _ANSWER_S)
        try:
            told[broker] = client.run(told_by(broker, names), round(s(1) * left_s))
        except TimedOutError:
            told[broker] = None
    return told


def late_by_any(told: Mapping[int, ClusterView | None], names: Sequence[str]) -> str | None:
    """What is not led or not in sync by the word of one broker at least."""
    if not told:
        return "the cluster names no broker"
    for broker, view in told.items():
        if view is None:
            return f"broker {broker} does not answer"
        unheard = [name for name in names if name not in view.topics]
        if unheard:
            return f"broker {broker} has not heard of topic {unheard[0]} yet"
        late = _first_late(view, list(view.topics.values()))
        if late is not None:
            return late
    return None


def until_stable(target: Target, group: str, timeout_s: float) -> DescribedGroup:
    """The group, once it has members and each of them has what it shall have."""
    deadline = time.monotonic() + timeout_s
    with connected(target) as client:
        while True:
            found = client.run(describe_group(client.view, group))
            if found is not None and found.state == STABLE:
                return found
            if time.monotonic() >= deadline:
                fail(_not_stable(group, found), UNREACHABLE)
            time.sleep(_TRY_EVERY_S)


def _not_stable(group: str, found: DescribedGroup | None) -> str:
    if found is None:
        return f"there is no group {group!r} yet: see tidelog group list"
    if not found.members:
        return f"group {group!r} has no members: see tidelog group describe {group} --state"
    members = counted(len(found.members), "member")
    see = f"tidelog group describe {group} --members"
    return f"group {group!r} is {found.state}, with {members}: see {see}"


def _first_late(view: ClusterView, topics: Sequence[TopicView]) -> str | None:
    for topic in topics:
        for number, partition in topic.partitions.items():
            missing = sorted(set(partition.replicas) - set(partition.isr))
            if partition.leader not in view.brokers:
                return f"{topic.name}-{number} has no leader"
            if missing:
                brokers = ", ".join(map(str, missing))
                return f"{topic.name}-{number} is not in sync: it lacks broker {brokers}"
    return None
