"""Runs clients without sockets: plans by hand, or a whole client over a fake network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tidelog.clients.asking import (
    Address,
    Answered,
    Ask,
    Call,
    Cause,
    Features,
    Lost,
    Outcome,
    Pause,
    Plan,
    Ticket,
)
from tidelog.clients.cluster_view import ClusterView
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.kernel.instant import Instant
from tidelog.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ResultT = TypeVar("ResultT")
Reply = Any
"""A response, or why there is none: a `Cause`; None is a question that is never answered."""


class Spoken(NamedTuple):
    """A response in a certain version; others are in version 0."""

    version: int
    message: Any


STEPS_MAX = 100
TOPIC_ID = Uuid(bytes(range(16)))


def drive(
    plan: Plan[ResultT], answer: Callable[[Call], Reply], pauses: list[Pause] | None = None
) -> ResultT:
    """Run a plan to its end; each call is answered by the function, pauses are noted."""
    outcomes: list[Outcome] = []
    try:
        step = next(plan)
        for _ in range(STEPS_MAX):
            if isinstance(step, Pause):
                if pauses is not None:
                    pauses.append(step)
                outcomes = []
            else:
                outcomes = [_outcome(Ticket(0), answer(call)) for call in step]
            step = plan.send(outcomes)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    raise AssertionError(f"no end after {STEPS_MAX} steps")


def replies(*given: Reply) -> Callable[[Call], Reply]:
    """One after the other; asking more often is a failure of the test."""
    waiting = list(given)
    return lambda _call: waiting.pop(0)


def by_api(**given: Any) -> Callable[[Call], Reply]:
    """By the API's name; a list is used up, the last of it stays."""

    def answer(call: Call) -> Reply:
        reply = given[call.ask.api.name]
        if isinstance(reply, list):
            return reply.pop(0) if len(reply) > 1 else reply[0]
        return reply

    return answer


def _outcome(ticket: Ticket, reply: Reply) -> Outcome:
    if isinstance(reply, Cause):
        return Lost(ticket, reply, reply.name.lower())
    if isinstance(reply, Spoken):
        return Answered(ticket, reply.version, reply.message)
    return Answered(ticket, 0, reply)


@dataclass
class FakeNetwork:
    """Answers after a delay; time moves only by waiting."""

    answer: Callable[[Address, Ask], Reply]
    delay_ns: int = 0
    time: int = 0
    asked: list[tuple[Address, Ask]] = field(default_factory=list)
    coming: list[tuple[int, Outcome]] = field(default_factory=list)
    features: Features = Features()

    def now(self) -> Instant:
        return Instant(self.time)

    def ask(self, to: Address, ask: Ask) -> Ticket:
        ticket = Ticket(len(self.asked))
        self.asked.append((to, ask))
        reply = self.answer(to, ask)
        if reply is not None:
            wanted = ask.answered or isinstance(reply, Cause)
            outcome = _outcome(ticket, reply if wanted else None)
            self.coming.append((self.time + self.delay_ns, outcome))
        return ticket

    def poll(self, until: Instant) -> list[Outcome]:
        first = min((at for at, _ in self.coming), default=until)
        self.time = max(self.time, min(first, until))
        ready = [outcome for at, outcome in self.coming if at <= self.time]
        self.coming = [one for one in self.coming if one[0] > self.time]
        if not ready:
            self.time = max(self.time, until)
        return ready


def metadata(
    *partitions: int,
    topic: str = "t",
    epoch: int = 0,
    error: int = 0,
    topic_id: Uuid = ZERO_UUID,
    brokers: tuple[int, ...] = (0, 1),
) -> MetadataResponse:
    """An answer with one topic, whose partitions are led by these brokers."""
    rows = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[0, 1],
            isr_nodes=[0, 1],
        )
        for number, leader in enumerate(partitions)
    ]
    named = MetadataResponseTopic(error_code=error, name=topic, topic_id=topic_id, partitions=rows)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=one, host=f"b{one}", port=9092) for one in brokers],
        cluster_id="c",
        controller_id=0,
        topics=[named],
    )


def view_of(*partitions: int, topic_id: Uuid = ZERO_UUID) -> ClusterView:
    """A view that knows topic t, its partitions led by these brokers."""
    view = ClusterView()
    view.update(metadata(*partitions, topic_id=topic_id), whole=True)
    return view
