"""What `tidelog wait` waits for on any Kafka cluster, by asking it again and again."""

import time
from collections.abc import Sequence

from tidelog.clients.admin.groups import STABLE, DescribedGroup, describe_group
from tidelog.clients.cluster_view import ClusterView, TopicView, refresh
from tidelog.kernel.instant import s
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.output import UNREACHABLE, CliError, Target, counted, fail

_TRY_EVERY_S = 0.05


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
    """The number of partitions of each topic, once all of them are led and in sync."""
    deadline = time.monotonic() + timeout_s
    with connected(target) as client:
        while True:
            topics = known_topics(client, names)
            late = _first_late(client.view, topics)
            if late is None:
                return {topic.name: len(topic.partitions) for topic in topics}
            if time.monotonic() >= deadline:
                fail(f"{late}: see tidelog topic describe", UNREACHABLE)
            time.sleep(_TRY_EVERY_S)


def until_all_in_sync(target: Target, timeout_s: float) -> None:
    """Every partition of every topic is led and in sync."""
    deadline = time.monotonic() + timeout_s
    with connected(target) as client:
        while True:
            client.run(refresh(client.view, None))
            late = _first_late(client.view, list(client.view.topics.values()))
            if late is None:
                return
            if time.monotonic() >= deadline:
                fail(f"{late}: see tidelog topic describe", UNREACHABLE)
            time.sleep(_TRY_EVERY_S)


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
