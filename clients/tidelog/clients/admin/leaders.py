"""Ask the leader of each partition, and again where leaders have moved, until all have answered."""

from collections.abc import Callable, Container, Iterable, Sequence

from tidelog.clients.asking import Ask, Call, Outcome, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, refresh
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import TopicPartition


def name_of(partition: TopicPartition) -> str:
    """As Kafka writes it in file names and logs."""
    return f"{partition[0]}-{partition[1]}"


def from_leaders(
    view: ClusterView,
    wanted: Iterable[TopicPartition],
    *,
    ask: Callable[[Sequence[TopicPartition]], Ask],
    take: Callable[[Outcome], str],
    done: Container[TopicPartition],
    rounds: int | None = None,
) -> Plan[None]:
    """Until every wanted partition is `done`, or was asked about in so many rounds.

    `take` notes an outcome; it returns why some of it must be asked again, or nothing.
    """
    failures = 0
    while missing := [one for one in wanted if one not in done]:
        because = yield from _once(view, missing, ask, take)
        if because:
            failures += 1
            if failures == rounds:
                return
            yield Pause(BACKOFF.wait(failures), because)
            yield from refresh(view, {topic for topic, _ in missing})


def _once(
    view: ClusterView,
    missing: Sequence[TopicPartition],
    ask: Callable[[Sequence[TopicPartition]], Ask],
    take: Callable[[Outcome], str],
) -> Plan[str]:
    """Each leader once; why some partition is still missing, if one is."""
    led, orphans = view.by_leader(missing)
    because = f"{name_of(orphans[0])} has no leader" if orphans else ""
    if led:
        outcomes = yield [Call(leader, ask(partitions)) for leader, partitions in led.items()]
        for outcome in outcomes:
            because = take(outcome) or because
    return because
