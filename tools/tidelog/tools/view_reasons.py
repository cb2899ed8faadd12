"""Why a partition is not as it should be, as far as Kafka's protocol tells. No I/O."""

from collections.abc import Collection, Iterator

from tidelog.clients.cluster_view import PartitionView
from tidelog.tools.output import counted
from tidelog.tools.reasons import Code, Reason


def of_view(
    name: str, view: PartitionView, there: Collection[int], min_in_sync: int | None
) -> list[Reason]:
    """What is the matter with it, the worst first; `there` are the brokers that are listed."""
    found: list[Reason] = []
    if view.leader not in there:
        found.append(Reason(Code.NO_LEADER, f"{name} has no leader: {_who(view, there)}"))
    elif min_in_sync is not None and len(view.isr) < min(min_in_sync, len(view.replicas)):
        in_sync = f"{counted(len(view.isr), 'replica')} in sync"
        asked = f"min.insync.replicas asks for {min_in_sync}"
        sentence = f"{name} refuses writes with acks=all: {in_sync}, {asked}"
        found.append(Reason(Code.UNDER_MIN_ISR, sentence))
    found += _missing(name, view, there)
    preferred = view.replicas[0]
    if view.leader in there and view.leader != preferred:
        who = f"{name} is led by broker {view.leader}, not by the preferred {preferred}"
        found.append(Reason(Code.NOT_PREFERRED, who, (), preferred))
    return found


def _who(view: PartitionView, there: Collection[int]) -> str:
    listed = [str(one) for one in view.replicas if one in there]
    if not listed:
        return "none of the brokers that have it is listed"
    return f"of the brokers that have it only {', '.join(listed)} are listed"


def _missing(name: str, view: PartitionView, there: Collection[int]) -> Iterator[Reason]:
    for broker in view.replicas:
        if broker in view.isr:
            continue
        what = "is listed, and catches up" if broker in there else "is not listed by the cluster"
        sentence = f"{name} lacks replica {broker}: broker {broker} {what}"
        yield Reason(Code.NOT_IN_SYNC, sentence, (), broker)
